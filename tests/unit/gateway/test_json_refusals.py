import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from gateway.json_refusals import HEAD_BYTES_MAX, JsonRefusalsProtocol
from gateway.server import server_for

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
HELLO = b"hello"


class HeldTransport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self._is_closing = False

    def write(self, data: bytes) -> None:
        assert not self._is_closing, "written after the close"
        self.written += data

    def close(self) -> None:
        self._is_closing = True

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def resume_reading(self) -> None:
        """Nothing is read here."""

    def get_extra_info(self, name: str) -> Any:
        """Say nothing of the other side."""
        return None


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": HELLO})


async def half_an_answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": HELLO, "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


async def answered(pieces: Sequence[bytes], app: Any = hello) -> HeldTransport:
    """Feed a connection as the server does, until it is closed, and give what was written."""
    config = server_for(app).config
    config.load()
    protocol = JsonRefusalsProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    transport = HeldTransport()
    protocol.connection_made(cast(asyncio.Transport, transport))
    for piece in pieces:
        if not transport.is_closing():
            protocol.data_received(piece)
            for _ in range(5):
                await asyncio.sleep(0)
    protocol.connection_lost(None)
    await asyncio.gather(*protocol.tasks)
    return transport


def refusal_in(written: bytes) -> tuple[bytes, dict[str, Any]]:
    """Give the status line and the body of an answer that must be whole JSON."""
    head, _, body = written.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/json" in lines
    assert b"connection: close" in lines
    assert b"content-length: %d" % len(body) in lines
    assert any(line.startswith(b"x-request-id: ") for line in lines)
    return head.split(b"\r\n")[0], orjson.loads(body)


def in_pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


@pytest.mark.parametrize(
    "data",
    [
        b"BROKEN\r\n\r\n",
        b"FOO / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nho st: x\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_no_http_is_refused_in_json(data: bytes) -> None:
    status, body = refusal_in((await answered([data])).written)
    assert status == b"HTTP/1.1 400 Bad Request"
    assert (body["error"]["code"], body["error"]["type"]) == ("bad_http", "invalid_request_error")
    assert body["error"]["message"].startswith("expected a request in HTTP/1.1, got ")


async def test_anthropics_paths_have_anthropics_form_here_too() -> None:
    data = b"POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n"
    _, body = refusal_in((await answered([data])).written)
    assert (body["type"], body["error"].keys()) == ("error", {"type", "message"})


@given(st.lists(st.integers(0, 2 * HEAD_BYTES_MAX), max_size=5), st.sampled_from([-1_000, 1_000]))
async def test_a_head_over_the_limit_is_refused_however_it_comes(cuts: list[int], more_bytes: int) -> None:
    head = b"GET /healthz HTTP/1.1\r\nx-long: " + b"a" * (HEAD_BYTES_MAX + more_bytes) + b"\r\n\r\n"
    written = (await answered(in_pieces(head, cuts))).written
    if more_bytes < 0:
        assert written.endswith(HELLO)
        return
    status, body = refusal_in(written)
    assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
    assert body["error"]["code"] == "head_too_large"


async def test_a_head_without_an_end_is_refused_while_it_comes() -> None:
    pieces = [b"GET /healthz HTTP/1.1\r\nx-long: ", *[b"a" * 1_000] * 1_000]
    written = (await answered(pieces)).written
    assert refusal_in(written)[1]["error"]["code"] == "head_too_large"


async def test_a_large_body_before_a_head_is_not_counted_as_its_part() -> None:
    length = 3 * HEAD_BYTES_MAX
    first = b"POST /a HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % length + b"b" * length
    written = (await answered([first + GET[:10], GET[10:]])).written
    assert written.count(HELLO) == 2


async def test_bytes_that_are_no_http_do_not_land_inside_an_answer() -> None:
    data = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    transport = await answered([data, b"no length\r\n"], half_an_answer)
    assert transport.is_closing()
    assert transport.written.endswith(HELLO + b"\r\n")
    assert b"bad_http" not in transport.written
