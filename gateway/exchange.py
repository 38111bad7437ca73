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
BODIES_BYTES_MAX = 1024**3
"""Of all requests that are being answered; one alone may be larger."""
LAST_S_MAX = 60.0
"""How long a client may take to make room for the last piece of its answer."""
JSON_TYPE: Header = (b"content-type", b"application/json")
_STREAM_TYPE: Header = (b"content-type", b"text/event-stream; charset=utf-8")
_TEXT_TYPE: Header = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_NO_CACHE: Header = (b"cache-control", b"no-cache")


class Bodies:
    """How many bytes of bodies are at hand, in the requests of one gateway."""

    def __init__(self) -> None:
        """Begin with none."""
        self.num_bytes = 0

    def take(self, num_bytes: int, *, own_bytes: int) -> None:
        """Take more of a body that has come so far. Raises RejectedError beside too much of others'."""
        if self.num_bytes > own_bytes and self.num_bytes + num_bytes > BODIES_BYTES_MAX:
            raise RejectedError(
                f"expected at most {BODIES_BYTES_MAX} bytes of bodies at once, got more: "
                "retry after the seconds of Retry-After",
                reason="over_concurrency",
            )
        self.num_bytes += num_bytes


class Exchange:
    """A request, its answer, and what the canonical line will say of both."""

    __slots__ = (
        "_bodies",
        "_receive",
        "_send",
        "api",
        "first_byte_s",
        "grant",
        "head",
        "is_sending",
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

    def __init__(self, scope: Scope, receive: Receive, send: Send, bodies: Bodies) -> None:
        """Begin with a request whose headers have come."""
        self._bodies = bodies
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
        self.is_sending = False
        """Whether a piece waits for its client to make room for it."""
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
            piece = message.get("body", b"")
            if self.num_bytes_in + len(piece) > bytes_max:
                raise _too_large(self.num_bytes_in + len(piece), bytes_max)
            self._bodies.take(len(piece), own_bytes=self.num_bytes_in)
            self.num_bytes_in += len(piece)
            pieces.append(piece)
            has_more = message.get("more_body", False)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def gone(self) -> None:
        """Wait until the client leaves. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def respond(self, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
        """Answer with a whole body of JSON. Raises ClientLeftError when the client does not take it."""
        await self._start(status, (JSON_TYPE, (b"content-length", b"%d" % len(body)), *headers))
        await self._write_last(body, has_more=False)

    async def respond_text(self, status: int, body: bytes) -> None:
        """Answer with Prometheus' text form, the one thing here that is not JSON."""
        await self._start(status, (_TEXT_TYPE, (b"content-length", b"%d" % len(body))))
        await self._write_last(body, has_more=False)

    async def start_stream(self, headers: Sequence[Header]) -> None:
        """Begin an answer that comes piece by piece."""
        await self._start(200, (_STREAM_TYPE, _NO_CACHE, *headers))

    async def write(self, data: bytes) -> None:
        """Send a piece."""
        await self._write(data, has_more=True)

    async def end(self, data: bytes) -> None:
        """Send the last piece. Raises ClientLeftError when the client does not take it."""
        await self._write_last(data, has_more=False)

    async def break_off(self, data: bytes) -> None:
        """Send a last piece and no end. Raises ClientLeftError when the client does not take it."""
        await self._write_last(data, has_more=True)

    def close(self) -> None:
        """Forget the body."""
        self._bodies.num_bytes -= self.num_bytes_in

    async def _start(self, status: int, headers: Sequence[Header]) -> None:
        self.is_started = True
        self.status = status
        own = (b"x-request-id", self.request_id.encode("ascii"))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, own]})

    async def _write(self, data: bytes, *, has_more: bool) -> None:
        if self.first_byte_s is None and data:
            self.first_byte_s = time.perf_counter() - self.started_s
        self.num_bytes_out += len(data)
        self.is_sending = True
        await self._send({"type": "http.response.body", "body": data, "more_body": has_more})
        self.is_sending = False

    async def _write_last(self, data: bytes, *, has_more: bool) -> None:
        try:
            async with asyncio.timeout(LAST_S_MAX):
                await self._write(data, has_more=has_more)
        except TimeoutError as error:
            raise ClientLeftError from error


class ClientLeftError(Exception):
    """The client closed its connection before its answer was complete, or does not take it."""


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
