"""Anthropic's client, unchanged, against the gateway in front of an engine that only knows chats."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from schemas.events import Api, CaptureFault, SamplingConstraint
from schemas.packed import tokens
from tests.gateway_rig import GatewayRig
from tests.scripted_upstream import Script, ScriptedToken, ScriptedUpstream, words

ASKED: Any = [{"role": "user", "content": "What is the capital of France?"}]
TOOL: Any = {"name": "add_numbers", "description": "Adds.", "input_schema": {"type": "object"}}


@pytest.fixture
def client(gateway: GatewayRig) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as found:
        yield found


def ask(client: anthropic.Anthropic, **fields: Any) -> Any:
    wanted = {"model": "any", "messages": ASKED, "max_tokens": 64, **fields}
    return client.messages.with_raw_response.create(**wanted)


def test_a_message_is_answered_and_captured_token_by_token(
    client: anthropic.Anthropic, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("The capital is Paris."),))
    raw = ask(client, system="Answer in English.", stop_sequences=["END"], extra_body={"top_k": 5})
    message = raw.parse()
    assert message.content[0].text == "The capital is Paris. "
    assert (message.stop_reason, message.model) == ("end_turn", "scripted")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 4)
    asked = upstream.asked[-1]
    assert asked["messages"][0] == {"role": "system", "content": "Answer in English."}
    assert (asked["stop"], asked["top_k"], asked["max_tokens"]) == (["END"], 5, 64)
    call = gateway.recorder.call(raw.headers["x-reef-agent-record-id"])
    assert call.api is Api.MESSAGES
    assert list(tokens(call.choices[0].token_ids)) == [100, 101, 102, 103]
    assert call.capture_faults == ()
    assert call.sampling.top_k == 5


def test_a_stream_has_anthropics_sequence_and_ends_with_the_receipt(
    client: anthropic.Anthropic, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("The capital is Paris."),))
    with client.messages.stream(model="any", messages=ASKED, max_tokens=64) as stream:
        events = list(stream)
        final = stream.get_final_message()
        receipt = stream.response.headers["x-reef-agent-record-id"]
    kinds = [event.type for event in events if event.type != "text"]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert final.content[0].type == "text"
    assert final.content[0].text == "The capital is Paris. "
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 4)
    call = gateway.recorder.call(receipt)
    assert list(tokens(call.choices[0].token_ids)) == [100, 101, 102, 103]
    assert call.capture_faults == ()


def test_message_stop_carries_the_receipt(client: anthropic.Anthropic) -> None:
    with client.messages.with_streaming_response.create(
        model="any", messages=ASKED, max_tokens=64, stream=True
    ) as raw:
        receipt = raw.headers["x-reef-agent-record-id"]
        lines = [line for line in raw.iter_lines() if line]
    assert lines[-2] == "event: message_stop"
    assert f'"agent_record_id":"{receipt}"' in lines[-1]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_tool_is_used_and_its_result_goes_back(
    client: anthropic.Anthropic, gateway: GatewayRig, upstream: ScriptedUpstream, is_stream: bool
) -> None:
    pieces: list[dict[str, Any]] = [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add_numbers"}},
        {"index": 0, "function": {"arguments": '{"a":15,'}},
        {"index": 0, "function": {"arguments": '"b":27}'}},
    ]
    upstream.script = Script(
        choices=(
            (*words("Let me see."), *(ScriptedToken(token_id=n, tool_call=p) for n, p in enumerate(pieces))),
        ),
        finish_reason="tool_calls",
    )
    history: Any = [
        *ASKED,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t0", "name": "x", "input": {"a": 1}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t0", "content": [{"type": "text", "text": "2"}]},
                {"type": "text", "text": "Go on."},
            ],
        },
    ]
    if is_stream:
        with client.messages.stream(model="m", messages=history, max_tokens=9, tools=[TOOL]) as stream:
            message: Any = stream.get_final_message()
    else:
        message = client.messages.create(
            model="m", messages=history, max_tokens=9, tools=[TOOL], tool_choice={"type": "any"}
        )
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.content[1].input == {"a": 15, "b": 27}
    assert message.stop_reason == "tool_use"
    asked = upstream.asked[-1]
    assert asked["messages"][1]["tool_calls"][0]["function"] == {"name": "x", "arguments": '{"a":1}'}
    assert asked["messages"][2] == {"role": "tool", "tool_call_id": "t0", "content": "2"}
    assert asked["messages"][3] == {"role": "user", "content": "Go on."}
    call = gateway.recorder.next_call()
    assert (SamplingConstraint.FORCED_TOOL in call.sampling.constraints) is not is_stream
    assert call.capture_faults == ()


def test_a_stop_sequence_is_named(client: anthropic.Anthropic, upstream: ScriptedUpstream) -> None:
    upstream.script = Script(choices=(words("one"),), stop_reason="END")
    message = ask(client, stop_sequences=["END"]).parse()
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")


def test_thinking_is_a_block_of_its_own(client: anthropic.Anthropic, upstream: ScriptedUpstream) -> None:
    upstream.script = Script(choices=((ScriptedToken(token_id=1, reasoning="Hm."), *words("Yes.")),))
    for is_stream in (False, True):
        if is_stream:
            with client.messages.stream(model="m", messages=ASKED, max_tokens=9) as stream:
                message: Any = stream.get_final_message()
        else:
            message = ask(client, thinking={"type": "enabled", "budget_tokens": 1024}).parse()
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert message.content[0].thinking == "Hm."


def test_a_picture_makes_the_call_inexact(
    client: anthropic.Anthropic, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
    raw = ask(client, messages=[{"role": "user", "content": content}])
    call = gateway.recorder.call(raw.headers["x-reef-agent-record-id"])
    assert call.capture_faults == (CaptureFault.NOT_TOKEN_EXACT,)
    assert upstream.asked[-1]["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/png")


def test_tokens_are_counted_without_a_record(client: anthropic.Anthropic, gateway: GatewayRig) -> None:
    assert client.messages.count_tokens(model="any", messages=ASKED, tools=[TOOL]).input_tokens == 11
    assert gateway.recorder.events == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages.0.content"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0"),
        ({"extra_body": {"temperature": "hot"}}, "temperature"),
        ({"extra_body": {"system": 5}}, "system"),
        ({"extra_body": {"thinking": "x"}}, "thinking"),
        ({"extra_body": {"stop_sequences": 5}}, "stop_sequences"),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name(
    client: anthropic.Anthropic, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as raised:
        ask(client, **fields)
    body: Any = raised.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert named in body["error"]["message"]


@pytest.mark.parametrize(
    ("status", "error"), [(429, anthropic.RateLimitError), (500, anthropic.InternalServerError)]
)
def test_an_engines_refusal_becomes_the_clients_own_exception(
    client: anthropic.Anthropic,
    upstream: ScriptedUpstream,
    status: int,
    error: type[anthropic.APIStatusError],
) -> None:
    upstream.script = Script(status=status, retry_after="7")
    with pytest.raises(error) as raised:
        ask(client)
    assert raised.value.response.headers.get("retry-after") == ("7" if status == 429 else None)


def test_a_stream_that_breaks_ends_with_an_error_event(
    client: anthropic.Anthropic, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("a b c d"),), breaks_after=2)
    with (
        client.messages.stream(model="m", messages=ASKED, max_tokens=9) as stream,
        pytest.raises(anthropic.APIStatusError),
    ):
        stream.get_final_message()
    assert gateway.recorder.next_call().outcome == "upstream_failed"
