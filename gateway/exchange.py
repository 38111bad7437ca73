"""Shell: one HTTP request and its answer, as ASGI carries them, with what is known of it so far.

Not an application: gateway/app.py opens an exchange, a handler answers it, the canonical line closes it.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import orjson

from gateway.auth import EVERYTHING, Grant
from gateway.errors import FieldError
from gateway.head import Head
from schemas.errors import RejectedError
from schemas.ids import Receipt, ReleaseId, ScenarioName

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_S_MAX = 60.0
"""How long a body may take to arrive."""
BODY_TIMEOUT = "body_timeout"
JSON_TYPE: Header = (b"content-type", b"application/json")
_STREAM_TYPE: Header = (b"content-type", b"text/event-stream; charset=utf-8")
_TEXT_TYPE: Header = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_NO_CACHE: Header = (b"cache-control", b"no-cache")


class Exchange:
    """A request, its answer, and what the canonical line will say of both."""

    __slots__ = (
        "_receive",
        "_send",
        "api",
        "first_byte_s",
        "grant",
        "head",
        "is_started",
        "method",
        "num_bytes_in",
        "num_bytes_out",
        "num_tokens",
        "path",
        "receipt",
        "release_id",
        "request_id",
        "result",
        "scenario",
        "started_at_us",
        "started_s",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin with a request whose headers have come."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._receive = receive
        self._send = send
        self.head = Head()
        self.grant: Grant = EVERYTHING
        self.request_id = ""
        self.started_s = time.perf_counter()
        self.started_at_us = time.time_ns() // 1000
        self.is_started = False
        self.status = 0
        self.num_bytes_in = 0
        self.num_bytes_out = 0
        self.num_tokens = 0
        self.first_byte_s: float | None = None
        self.scenario: ScenarioName | None = None
        self.receipt: Receipt | None = None
        self.release_id: ReleaseId | None = None
        self.api = ""
        self.result = ""

    def identify(self, head: Head) -> None:
        """Keep the client's request id, or mint one."""
        self.head = head
        self.request_id = head.request_id or os.urandom(16).hex()

    async def body(self, bytes_max: int) -> bytes:
        """Read the request's body. Raises RejectedError when it is too large, too slow or cut short."""
        announced = self.head.content_length
        if announced is not None and announced > bytes_max:
            raise _too_large(announced, bytes_max)
        task = asyncio.current_task()
        assert task is not None
        late = asyncio.get_running_loop().call_later(BODY_S_MAX, task.cancel, BODY_TIMEOUT)
        try:
            return await self._whole_body(bytes_max)
        except asyncio.CancelledError as error:
            if error.args != (BODY_TIMEOUT,):
                raise
            task.uncancel()
            raise RejectedError(
                f"expected the body within {BODY_S_MAX:.0f} s, got part of it: send it faster",
                reason=BODY_TIMEOUT,
            ) from error
        finally:
            late.cancel()

    async def _whole_body(self, bytes_max: int) -> bytes:
        pieces: list[bytes] = []
        has_more = True
        while has_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            pieces.append(message.get("body", b""))
            self.num_bytes_in += len(pieces[-1])
            if self.num_bytes_in > bytes_max:
                raise _too_large(self.num_bytes_in, bytes_max)
            has_more = message.get("more_body", False)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def gone(self) -> None:
        """Wait until the client leaves. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def respond(self, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
        """Answer with a whole body of JSON."""
        await self._start(status, (JSON_TYPE, (b"content-length", b"%d" % len(body)), *headers))
        await self._write(body, has_more=False)

    async def respond_text(self, status: int, body: bytes) -> None:
        """Answer with Prometheus' text form, the one thing here that is not JSON."""
        await self._start(status, (_TEXT_TYPE, (b"content-length", b"%d" % len(body))))
        await self._write(body, has_more=False)

    async def start_stream(self, headers: Sequence[Header]) -> None:
        """Begin an answer that comes piece by piece."""
        await self._start(200, (_STREAM_TYPE, _NO_CACHE, *headers))

    async def write(self, data: bytes) -> None:
        """Send a piece."""
        await self._write(data, has_more=True)

    async def end(self, data: bytes) -> None:
        """Send the last piece."""
        await self._write(data, has_more=False)

    async def _start(self, status: int, headers: Sequence[Header]) -> None:
        self.is_started = True
        self.status = status
        own = (b"x-request-id", self.request_id.encode("ascii"))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, own]})

    async def _write(self, data: bytes, *, has_more: bool) -> None:
        if self.first_byte_s is None and data:
            self.first_byte_s = time.perf_counter() - self.started_s
        self.num_bytes_out += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": has_more})


class ClientLeftError(Exception):
    """The client closed its connection before its answer was complete."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object. Raises RejectedError on anything else, invalid UTF-8 included."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RejectedError(
            f"expected JSON in UTF-8, got {str(error)[:120]}: correct the body", reason="bad_json"
        ) from error
    if not isinstance(value, dict):
        raise FieldError(
            f"expected a JSON object, got {type(value).__name__}: send an object",
            param="body",
            reason="bad_json",
        )
    return value


def _too_large(num_bytes: int, bytes_max: int) -> RejectedError:
    return RejectedError(
        f"expected a body of at most {bytes_max} bytes, got {num_bytes}: send less, or raise body_bytes_max",
        reason="body_too_large",
    )
