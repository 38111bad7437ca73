"""Refusals, silence and strangers behind an address: each becomes the kind that says who can act."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr

from deploy.gateway_client import GatewayClient
from deploy.ports import free_port
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that gave up: one of the tests does."""


@contextmanager
def answering(reply: Callable[[BaseHTTPRequestHandler], tuple[int, bytes]]) -> Iterator[str]:
    """Serve one answer to everything; give the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = reply(self)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def client(url: str, token: str | None = None) -> GatewayClient:
    return GatewayClient(url=url, token=None if token is None else SecretStr(token))


def refusal(code: str) -> bytes:
    return json.dumps(
        {"error": {"message": "expected it", "type": "x", "param": None, "code": code}}
    ).encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RejectedError),
        (401, RejectedError),
        (404, RejectedError),
        (409, ConflictError),
        (429, UnavailableError),
        (500, UnavailableError),
        (503, UnavailableError),
    ],
)
def test_a_refusal_is_said_in_the_gateways_words(status: int, kind: type[ReefError]) -> None:
    with answering(lambda _: (status, refusal("why"))) as url, pytest.raises(kind) as refused:
        client(url).get("/reef/status")
    assert (str(refused.value), refused.value.reason) == ("expected it", "why")


def test_the_token_the_scenario_and_the_body_are_sent() -> None:
    seen: list[tuple[str | None, str | None, bytes]] = []

    def reply(asked: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        body = asked.rfile.read(int(asked.headers["content-length"]))
        seen.append((asked.headers["authorization"], asked.headers["x-reef-scenario"], body))
        return 200, b'{"ok": true}'

    with answering(reply) as url:
        answer = client(f"{url}", "secret").post("/x", {"a": 1}, scenario="s", answer_s_max=5)
    assert answer == {"ok": True}
    assert seen == [("Bearer secret", "s", b'{"a": 1}')]


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b""])
def test_a_stranger_is_known(body: bytes) -> None:
    with answering(lambda _: (200, body)) as url, pytest.raises(UnavailableError, match="is it a gateway"):
        client(url).get("/")


def test_nobody_there_says_how_to_start_one() -> None:
    with pytest.raises(UnavailableError, match="Connection refused: start one with `reef serve`"):
        client(f"http://127.0.0.1:{free_port()}").get("/")


def test_silence_has_a_deadline() -> None:
    released = threading.Event()

    def reply(_: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        released.wait(20)
        return 200, b"{}"

    with answering(reply) as url:
        with pytest.raises(UnavailableError, match=r"within 0\.1 s, got nothing"):
            client(url).post("/x", {}, answer_s_max=0.1)
        released.set()


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8900", "ftp://x", "http://", "http://x:99999999", "http://a:pw@x"]
)
def test_an_address_that_is_none_is_wrong_usage(url: str) -> None:
    with pytest.raises(RejectedError, match="expected the gateway's address") as refused:
        client(url).get("/")
    assert refused.value.reason == "configuration"
    assert "pw" not in str(refused.value)
