"""What was generated is gathered without loss, whole or in chunks."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.capture import Capture
from gateway.chat import Chat
from gateway.completions import Completions
from gateway.dialect import Ask
from gateway.sampling import PLAIN_SAMPLING
from gateway.sse import DONE, SseParser
from schemas.errors import UnavailableError
from tests.scripted_upstream import Script, ScriptedToken, _ChatForm, _CompletionsForm, _Form

TOKENS = st.lists(
    st.builds(
        ScriptedToken,
        token_id=st.integers(0, 2**32 - 1),
        text=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        logprob=st.floats(-100, 0, width=32),
    ),
    min_size=1,
    max_size=6,
)
SCRIPTS = st.builds(
    Script,
    prompt_ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5),
    choices=st.lists(TOKENS, min_size=1, max_size=3),
)
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}


def asked(path: str, *, is_stream: bool) -> Ask:
    dialect = Chat() if path == "chat" else Completions()
    body = {**CHAT, "prompt": "x", "stream": is_stream}
    return dialect.ask(body, PLAIN_SAMPLING)


def form(path: str) -> _Form:
    return _ChatForm() if path == "chat" else _CompletionsForm()


def streamed(path: str, script: Script) -> Capture:
    capture, parser = Capture(), SseParser()
    upstream = asked(path, is_stream=True).upstream
    for _, event in form(path).events(upstream, script):
        for payload in parser.feed(event):
            if payload != DONE:
                capture.chunk(orjson.loads(payload))
    return capture


@pytest.mark.parametrize("path", ["chat", "completions"])
@given(SCRIPTS)
def test_a_stream_and_a_whole_answer_give_the_same_capture(path: str, script: Script) -> None:
    whole = Capture()
    upstream = asked(path, is_stream=False).upstream
    num_tokens = whole.answer(orjson.loads(orjson.dumps(form(path).whole(upstream, script))))
    stream = streamed(path, script)
    assert num_tokens == sum(len(tokens) for tokens in script.choices)
    for capture in (whole, stream):
        assert list(capture.prompt_token_ids or ()) == list(script.prompt_ids)
        for index, tokens in enumerate(script.choices):
            choice = capture.choices[index]
            assert list(choice.token_ids) == [token.token_id for token in tokens]
            assert list(choice.logprobs) == [token.logprob for token in tokens]
            assert "".join(choice.content) == "".join(token.text for token in tokens)
            assert choice.finish_reason == "stop"


@pytest.mark.parametrize("path", ["chat", "completions"])
@given(SCRIPTS)
def test_a_client_gets_nothing_that_it_did_not_ask_for(path: str, script: Script) -> None:
    dialect = Chat() if path == "chat" else Completions()
    ask = asked(path, is_stream=False)
    answer = form(path).whole(ask.upstream, script)
    body = orjson.loads(dialect.answer(ask, answer, b"", "public"))
    assert body["model"] == "public"
    assert "prompt_token_ids" not in body
    for choice in body["choices"]:
        assert choice["logprobs"] is None
        assert choice.keys().isdisjoint({"token_ids", "prompt_token_ids"})


def test_an_answer_that_needs_no_change_is_not_written_anew() -> None:
    ask = Chat().ask({**CHAT, "logprobs": True, "return_token_ids": True}, PLAIN_SAMPLING)
    raw = b' {"choices": [], "model": "m"} '
    assert Chat().answer(ask, orjson.loads(raw), raw, "m") is raw


@pytest.mark.parametrize(
    "answer",
    [{}, {"choices": None}, {"choices": [{}]}, {"choices": [1]}, {"choices": [{"index": 0, "logprobs": 3}]}],
)
def test_another_shape_is_nonsense(answer: dict[str, Any]) -> None:
    with pytest.raises(UnavailableError, match="expected"):
        Capture().answer(answer)


@pytest.mark.parametrize("index", ["x", -1, True, 2**31, None, 1.0])
def test_an_index_that_events_cannot_hold_is_another_shape(index: object) -> None:
    with pytest.raises(UnavailableError, match="expected an answer"):
        Capture().answer({"choices": [{"index": index, "message": {"content": "a"}}]})
