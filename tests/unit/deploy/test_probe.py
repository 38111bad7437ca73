"""What answers, what is of no use, and what is only slow."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from deploy import probe
from deploy.ports import free_port
from deploy.probe import answers, is_gone


class Health(BaseHTTPRequestHandler):
    """Answers with the status that its path names."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.strip("/")))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Health) as found:
        thread = Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "answered", "gone"), [(200, True, False), (404, False, False), (503, False, True)]
)
def test_a_status_says_whether_somebody_is_there(
    server: str, status: int, answered: bool, gone: bool
) -> None:
    assert (answers(f"{server}/{status}"), is_gone(f"{server}/{status}")) == (answered, gone)


def test_where_nobody_listens_nobody_is() -> None:
    url = f"http://127.0.0.1:{free_port()}/200"
    assert (answers(url), is_gone(url)) == (False, True)


def test_one_that_is_slow_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_PROBE_S_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/200"
        assert (answers(url), is_gone(url)) == (False, False)
