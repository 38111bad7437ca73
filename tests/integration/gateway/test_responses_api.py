"""OpenAI's client speaks Responses; the engine is asked as in a chat, and captured as exactly."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from schemas.events import Api, CaptureFault, SamplingConstraint
from schemas.packed import tokens
from tests.gateway_rig import GatewayRig
from tests.scripted_upstream import Script, ScriptedToken, ScriptedUpstream, words

TOOL: Any = {"type": "function", "name": "add_numbers", "parameters": {"type": "object"}, "strict": False}


@pytest.fixture
def client(gateway: GatewayRig) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0) as found:
        yield found


def test_a_response_is_answered_and_captured_token_by_token(
    client: openai.OpenAI, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("The capital is Paris."),))
    raw = client.responses.with_raw_response.create(
        model="any", input="What is the capital?", instructions="Answer in English.", max_output_tokens=9
    )
    response: Any = raw.parse()
    assert response.output_text == "The capital is Paris. "
    assert (response.status, response.model, response.usage.output_tokens) == ("completed", "scripted", 4)
    asked = upstream.asked[-1]
    assert asked["messages"] == [
        {"role": "system", "content": "Answer in English."},
        {"role": "user", "content": "What is the capital?"},
    ]
    assert asked["max_tokens"] == 9
    call = gateway.recorder.call(raw.headers["x-reef-agent-record-id"])
    assert call.api is Api.RESPONSES
    assert list(tokens(call.choices[0].token_ids)) == [100, 101, 102, 103]
    assert call.capture_faults == ()


def test_the_clients_own_parser_reads_the_stream(
    client: openai.OpenAI, gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=((ScriptedToken(token_id=1, reasoning="Hm."), *words("one two")),))
    with client.responses.stream(model="any", input="Count") as stream:
        events: list[Any] = list(stream)
        final: Any = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert final.output_text == "one two "
    assert [item.type for item in final.output] == ["reasoning", "message"]
    call = gateway.recorder.next_call()
    assert final.model_extra["reef"] == {"agent_record_id": call.receipt}
    assert call.capture_faults == ()


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_tool_is_called_and_its_output_goes_back(
    client: openai.OpenAI, gateway: GatewayRig, upstream: ScriptedUpstream, is_stream: bool
) -> None:
    pieces: list[dict[str, Any]] = [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add_numbers"}},
        {"index": 0, "function": {"arguments": '{"a":15,"b":27}'}},
    ]
    choice = tuple(ScriptedToken(token_id=n, tool_call=piece) for n, piece in enumerate(pieces))
    upstream.script = Script(choices=(choice,), finish_reason="tool_calls")
    history: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "Add."}]},
        {"type": "function_call", "call_id": "c0", "name": "x", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c0", "output": "2"},
    ]
    if is_stream:
        with client.responses.stream(model="any", input=history, tools=[TOOL]) as stream:
            response: Any = stream.get_final_response()
    else:
        response = client.responses.create(
            model="any", input=history, tools=[TOOL], tool_choice={"type": "function", "name": "add_numbers"}
        )
    (item,) = response.output
    assert (item.type, item.name, item.arguments) == ("function_call", "add_numbers", '{"a":15,"b":27}')
    asked = upstream.asked[-1]["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant", "tool"]
    assert asked[1]["tool_calls"][0]["id"] == asked[2]["tool_call_id"] == "c0"
    constraints = gateway.recorder.next_call().sampling.constraints
    assert (SamplingConstraint.FORCED_TOOL in constraints) is not is_stream


def test_a_picture_makes_the_call_inexact(client: openai.OpenAI, gateway: GatewayRig) -> None:
    content: Any = [{"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"}]
    client.responses.create(model="any", input=[{"role": "user", "content": content}])
    assert gateway.recorder.next_call().capture_faults == (CaptureFault.NOT_TOKEN_EXACT,)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"tools": [{"type": "web_search"}]}, "tools.0"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
        ({"text": "json"}, "text"),
        ({"reasoning": 5}, "reasoning"),
        ({"include": "all"}, "include"),
        ({"extra_body": {"top_logprobs": "2"}}, "top_logprobs"),
        ({"extra_body": {"n": "2"}}, "n"),
    ],
)
def test_what_needs_a_memory_or_other_tools_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(**{"model": "any", "input": "x", **fields})
    assert raised.value.param == param
