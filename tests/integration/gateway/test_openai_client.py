"""The client that people have, unchanged, against the gateway."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from schemas.events import Api, CallOutcome, SamplingConstraint, WeightSpan
from schemas.packed import floats, tokens
from tests.gateway_rig import RELEASE, GatewayRig, running_gateway, serving
from tests.scripted_upstream import Script, ScriptedToken, ScriptedUpstream, words

ASKED: Any = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def client(gateway: GatewayRig) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0) as found:
        yield found


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.with_raw_response.create(model="any", messages=ASKED, **fields)


def test_a_chat_is_answered_and_captured_token_by_token(
    client: openai.OpenAI, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("The capital is Paris."),), prompt_ids=(5, 6, 7))
    raw = chat(client, extra_headers={"x-reef-tag-session": "s1", "x-reef-tag-Team": "a"})
    answer = raw.parse()
    assert answer.choices[0].message.content == "The capital is Paris. "
    assert answer.choices[0].logprobs is None
    assert "token_ids" not in raw.text
    assert answer.model == "scripted"
    assert raw.headers["x-reef-release-id"] == RELEASE
    call = gateway.recorder.call(raw.headers["x-reef-agent-record-id"])
    assert (call.api, call.outcome, call.session) == (Api.CHAT, CallOutcome.COMPLETED, "s1")
    assert dict(call.tags) == {"team": "a"}
    assert list(tokens(call.prompt_token_ids)) == [5, 6, 7]
    assert list(tokens(call.choices[0].token_ids)) == [100, 101, 102, 103]
    assert list(floats(call.choices[0].logprobs)) == [-0.125, -0.25, -0.375, -0.5]
    assert call.weight_spans == (WeightSpan(release_seq=0, num_tokens=4),)
    assert call.capture_faults == ()
    assert (call.usage.prompt, call.usage.completion) == (3, 4)
    assert call.response == raw.content


def test_what_every_call_adds_reaches_the_engine(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    chat(client, temperature=0.3)
    asked = upstream.asked[-1]
    assert asked["model"] == "scripted"
    assert asked["cache_salt"] == RELEASE
    assert asked["return_token_ids"] is True
    assert asked["logprobs"] is True
    written = {"temperature": 0.3, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert written.items() <= asked.items()


def test_a_stream_is_passed_on_with_its_receipt_before_the_end(
    client: openai.OpenAI, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("The capital is Paris."),))
    with client.chat.completions.with_streaming_response.create(
        model="any", messages=ASKED, stream=True
    ) as raw:
        receipt = raw.headers["x-reef-agent-record-id"]
        lines = [line for line in raw.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert f'"reef":{{"agent_record_id":"{receipt}"}}' in lines[-2]
    assert not [line for line in lines if '"token_ids"' in line or '"usage"' in line]
    call = gateway.recorder.call(receipt)
    assert list(tokens(call.choices[0].token_ids)) == [100, 101, 102, 103]
    assert call.capture_faults == ()
    assert "The capital is Paris." in bytes(call.response).decode()


def test_the_clients_own_parser_reads_the_stream(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.script = Script(choices=(words("one two three"),))
    options: Any = {"include_usage": True}
    stream: Any = client.chat.completions.create(
        model="any", messages=ASKED, stream=True, stream_options=options
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "one two three "
    usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert [usage.completion_tokens for usage in usages] == [3]


def test_logprobs_and_ids_come_to_those_who_ask(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.script = Script(choices=(words("one two"),))
    raw = chat(client, logprobs=True, extra_body={"return_token_ids": True})
    answer = raw.parse()
    assert [entry.logprob for entry in answer.choices[0].logprobs.content] == [-0.125, -0.25]
    assert answer.choices[0].token_ids == [100, 101]


def test_every_one_of_several_answers_is_captured(
    client: openai.OpenAI, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("one two"), words("three", first_id=200)))
    for is_stream in (False, True):
        raw = chat(client, n=2, stream=is_stream)
        if is_stream:
            list(raw.parse())
        call = gateway.recorder.call(raw.headers["x-reef-agent-record-id"])
        assert [list(tokens(choice.token_ids)) for choice in call.choices] == [[100, 101], [200]]
        assert call.capture_faults == ()


def test_a_tool_call_over_a_stream_is_whole(
    client: openai.OpenAI, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    """CASES 2: some chunks carry ids without text."""
    pieces = [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add_numbers"}},
        {"index": 0, "function": {"arguments": '{"a":15,'}},
        {"index": 0, "function": {"arguments": '"b":27}'}},
    ]
    silent = ScriptedToken(token_id=50)
    upstream.script = Script(
        choices=(
            (silent, *(ScriptedToken(token_id=51 + n, tool_call=p) for n, p in enumerate(pieces)), silent),
        ),
        finish_reason="tool_calls",
    )
    tool: Any = {"type": "function", "function": {"name": "add_numbers", "parameters": {}}}
    raw = chat(client, stream=True, tools=[tool])
    calls = [c.choices[0].delta.tool_calls for c in raw.parse() if c.choices]
    arguments = "".join(c[0].function.arguments or "" for c in calls if c and c[0].function)
    assert arguments == '{"a":15,"b":27}'
    call = gateway.recorder.call(raw.headers["x-reef-agent-record-id"])
    assert list(tokens(call.choices[0].token_ids)) == [50, 51, 52, 53, 50]
    assert call.usage.completion == 5
    assert call.capture_faults == ()
    assert '"arguments":"{\\"a\\":15,\\"b\\":27}"' in bytes(call.response).decode()


def test_completions_are_captured_too(
    client: openai.OpenAI, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("one two"),))
    for is_stream in (False, True):
        raw = client.completions.with_raw_response.create(model="any", prompt="Count:", stream=is_stream)
        parsed: Any = raw.parse()
        pieces = list(parsed) if is_stream else [parsed]
        assert "".join(p.choices[0].text for p in pieces if p.choices) == "one two "
        call = gateway.recorder.call(raw.headers["x-reef-agent-record-id"])
        assert call.api is Api.COMPLETIONS
        assert list(tokens(call.choices[0].token_ids)) == [100, 101]
        assert list(floats(call.choices[0].logprobs)) == [-0.125, -0.25]
        assert call.capture_faults == ()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (413, openai.APIStatusError),
        (401, openai.InternalServerError),
        (404, openai.InternalServerError),
        (500, openai.InternalServerError),
    ],
)
def test_an_engines_refusal_becomes_the_clients_own_exception(
    client: openai.OpenAI,
    gateway: GatewayRig,
    upstream: ScriptedUpstream,
    status: int,
    error: type[openai.APIStatusError],
) -> None:
    upstream.script = Script(status=status)
    with pytest.raises(error) as raised:
        chat(client)
    assert raised.value.status_code == (status if status in (400, 413, 422, 429) else 502)
    if status == 400:
        assert "scripted 400" in raised.value.message
        assert raised.value.param == "messages"
    assert gateway.recorder.events == []


def test_constraints_of_a_request_are_facts_of_its_event(client: openai.OpenAI, gateway: GatewayRig) -> None:
    raw = chat(client, top_p=0.9, seed=7, logit_bias={"5": 1}, response_format={"type": "json_object"})
    sampling = gateway.recorder.call(raw.headers["x-reef-agent-record-id"]).sampling
    assert (sampling.top_p, sampling.seed) == (0.9, 7)
    assert sampling.constraints == (SamplingConstraint.LOGIT_BIAS, SamplingConstraint.STRUCTURED_OUTPUT)


def test_a_stream_that_crosses_a_swap_says_which_tokens_are_whose(upstream: ScriptedUpstream) -> None:
    upstream.script = Script(choices=(words("a b c d e f"),), chunk_delay_s=0.05)
    with running_gateway([upstream.url]) as gateway:
        client = openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0)
        state = gateway.catalog.add(gateway.catalog.names()[0])
        num_pieces = 0
        raw = chat(client, stream=True)
        for chunk in raw.parse():
            num_pieces += bool(chunk.choices and chunk.choices[0].delta.content)
            if num_pieces == 3 and state.serving == serving(0):
                state.serving = serving(1)
                state.streams.close_spans(1)
        call = gateway.recorder.call(raw.headers["x-reef-agent-record-id"])
        client.close()
    assert [span.release_seq for span in call.weight_spans] == [0, 1]
    assert sum(span.num_tokens for span in call.weight_spans) == 6
    assert call.weight_spans[0].num_tokens >= 3
    assert call.release_id == serving(0).release_id
