"""An adapter is loaded under a name of its own, asked, and unloaded whatever happens."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from release.engine_answers import ask_engine
from release.evaluation import Content
from schemas.errors import UnavailableError
from schemas.events import ArtifactKind
from tests.builders import SHA256

ASKED = [[{"role": "user", "content": "one"}], [{"role": "user", "content": "fail"}]]
NAME = f"candidate--{SHA256[:16]}"


class Engine(BaseHTTPRequestHandler):
    """Answers with the model's name and the question."""

    calls: list[tuple[str, Any]]

    def do_GET(self) -> None:
        self._say(200, {"data": [{"id": "base"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.calls.append((self.path, body))
        if self.path != "/v1/chat/completions":
            self._say(200, "Success")
            return
        question = body["messages"][-1]["content"]
        if question == "fail":
            self._say(500, {"error": "no"})
            return
        self._say(200, {"choices": [{"message": {"content": f"{body['model']} {question}"}}]})

    def _say(self, status: int, body: object) -> None:
        text = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    calls: list[tuple[str, Any]] = []
    server = HTTPServer(("127.0.0.1", 0), type("OwnEngine", (Engine,), {"calls": calls}))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", calls
    server.shutdown()
    thread.join()
    server.server_close()


def an_adapter(folder: Path, kind: ArtifactKind = ArtifactKind.LORA) -> Content:
    return Content(kind=kind, folder=folder, content_sha256=SHA256)


def test_an_adapter_answers_under_its_own_name(
    engine: tuple[str, list[tuple[str, Any]]], tmp_path: Path
) -> None:
    url, calls = engine
    assert ask_engine(url, an_adapter(tmp_path), ASKED[:1], tokens_max=8) == [f"{NAME} one"]
    assert [path for path, _ in calls] == [
        "/v1/load_lora_adapter",
        "/v1/chat/completions",
        "/v1/unload_lora_adapter",
    ]
    assert calls[0][1] == {"lora_name": NAME, "lora_path": str(tmp_path)}
    assert (calls[1][1]["temperature"], calls[1][1]["max_tokens"]) == (0, 8)


def test_the_base_model_answers_under_the_engines_name(
    engine: tuple[str, list[tuple[str, Any]]], tmp_path: Path
) -> None:
    url, calls = engine
    base = an_adapter(tmp_path, ArtifactKind.CHECKPOINT)
    assert ask_engine(url, base, ASKED[:1], tokens_max=8) == ["base one"]
    assert len(calls) == 1


def test_an_adapter_is_unloaded_when_the_engine_fails(
    engine: tuple[str, list[tuple[str, Any]]], tmp_path: Path
) -> None:
    url, calls = engine
    with pytest.raises(UnavailableError, match="status 500"):
        ask_engine(url, an_adapter(tmp_path), ASKED, tokens_max=8)
    assert calls[-1] == ("/v1/unload_lora_adapter", {"lora_name": NAME})


def test_an_engine_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="--enable-lora"):
        ask_engine("http://127.0.0.1:1", an_adapter(tmp_path), ASKED, tokens_max=8)
