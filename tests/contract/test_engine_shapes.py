"""The scripted engine and the real one answer in the same shapes: what holds for one holds for the other."""

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from gateway.capture import Capture
from gateway.chat import Chat
from gateway.completions import Completions
from gateway.dialect import Dialect
from gateway.sampling import PLAIN_SAMPLING
from gateway.sse import DONE, SseParser
from tests.scripted_upstream import Script, running_upstream, words

ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Count to five."}],
    "prompt": "One, two,",
    "max_tokens": 8,
    "temperature": 0,
}


@pytest.fixture(scope="module", params=["scripted", pytest.param("real", marks=pytest.mark.engine)])
def engine(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    if request.param == "real":
        url = request.getfixturevalue("tiny_engine").url
        with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
            yield client
        return
    script = Script(choices=(words("a b c d e f g h"),), prompt_ids=range(20), finish_reason="length")
    with (
        running_upstream(script) as upstream,
        httpx.Client(base_url=upstream.url, timeout=120, trust_env=False) as client,
    ):
        yield client


def upstream_body(engine: httpx.Client, dialect: Dialect, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Ask as the gateway asks."""
    model = engine.get("/v1/models").json()["data"][0]["id"]
    ask = dialect.ask({**ASKED, **fields}, PLAIN_SAMPLING)
    unknown = {"prompt"} if ask.path == "/v1/chat/completions" else {"messages"}
    body = {key: value for key, value in ask.upstream.items() if key not in unknown}
    return ask.path, {**body, "model": model, "cache_salt": "a" * 40}


def streamed(engine: httpx.Client, path: str, body: dict[str, Any]) -> tuple[Capture, list[dict[str, Any]]]:
    capture, parser, chunks = Capture(), SseParser(), list[dict[str, Any]]()
    with engine.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        payloads = [payload for piece in answer.iter_bytes() for payload in parser.feed(piece)]
    assert payloads[-1] == DONE
    for payload in payloads[:-1]:
        chunks.append(orjson.loads(payload))
        capture.chunk(chunks[-1])
    return capture, chunks


@pytest.mark.parametrize("dialect", [Chat(), Completions()], ids=["chat", "completions"])
def test_a_whole_answer_has_ids_logprobs_and_a_count_that_agree(
    engine: httpx.Client, dialect: Dialect
) -> None:
    path, body = upstream_body(engine, dialect)
    capture = Capture()
    capture.answer(engine.post(path, json=body).raise_for_status().json())
    check(capture)


@pytest.mark.parametrize("dialect", [Chat(), Completions()], ids=["chat", "completions"])
def test_a_stream_has_ids_logprobs_and_a_count_that_agree(engine: httpx.Client, dialect: Dialect) -> None:
    path, body = upstream_body(engine, dialect, stream=True)
    capture, chunks = streamed(engine, path, body)
    check(capture)
    assert chunks[-1]["choices"] == []
    assert all(len(chunk["choices"]) == 1 for chunk in chunks[:-1])
    assert {chunk["id"] for chunk in chunks} == {capture.id}


@pytest.mark.parametrize("dialect", [Chat(), Completions()], ids=["chat", "completions"])
def test_several_answers_share_a_prompt(engine: httpx.Client, dialect: Dialect) -> None:
    path, body = upstream_body(engine, dialect, n=2, temperature=1, stream=True)
    capture, _ = streamed(engine, path, body)
    assert capture.has_shared_prompt
    assert capture.usage is not None
    if len(capture.choices) > 1:  # a script has as many choices as it has
        assert sorted(capture.choices) == [0, 1]
        assert capture.usage["completion_tokens"] == capture.num_completion_tokens()


def check(capture: Capture) -> None:
    assert capture.usage is not None
    (choice,) = capture.choices.values()
    assert choice.has_all_ids
    assert len(choice.token_ids) == len(choice.logprobs) == capture.usage["completion_tokens"] == 8
    assert len(capture.prompt_token_ids or ()) == capture.usage["prompt_tokens"] > 0
    assert all(logprob <= 0 for logprob in choice.logprobs)
    assert choice.finish_reason == "length"
    assert "".join(choice.content)


def test_questions_are_counted(engine: httpx.Client) -> None:
    model = engine.get("/v1/models").json()["data"][0]["id"]
    body = {"model": model, "messages": ASKED["messages"], "add_generation_prompt": True}
    assert engine.post("/tokenize", json=body).json()["count"] > 0


def test_a_healthy_engine_says_so(engine: httpx.Client) -> None:
    assert engine.get("/health").status_code == 200
