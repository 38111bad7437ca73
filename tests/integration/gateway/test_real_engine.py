"""The gateway before the real engine: what it records is what the engine generated."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from deploy.embedded.engine import Engine
from gateway.engines import Engines
from gateway.record import PROCESSED
from schemas.events import SamplingConstraint
from schemas.packed import floats, tokens
from tests.conftest import running_engine
from tests.gateway_rig import GatewayRig, running_gateway, with_settings

pytestmark = pytest.mark.engine

ASKED: Any = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def engine(make_state_dir: Callable[[str], Path]) -> Iterator[Engine]:
    """The real engine, with a parser of tool calls."""
    arguments = ("--enable-auto-tool-choice", "--tool-call-parser=hermes")
    with running_engine("tiny", make_state_dir("tool-engine"), extra_arguments=arguments) as found:
        yield found


@pytest.fixture(scope="module")
def rig(engine: Engine) -> Iterator[GatewayRig]:
    model = engine.model.name
    settings = with_settings(public_model=model, timeout_s=120.0)
    with running_gateway([engine.url], model=model, settings=settings) as found:
        yield found


@pytest.fixture(scope="module")
def client(rig: GatewayRig) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=rig.url + "/v1", api_key="none", max_retries=0) as found:
        yield found


async def test_the_engine_gives_logprobs_of_what_it_sampled_from(engine: Engine) -> None:
    async with Engines([engine.url], wait_s=0) as engines:
        assert await engines.probe(engines.engines[0], engine.model.name) == PROCESSED


def test_fifty_calls_are_recorded_as_they_were_generated(client: openai.OpenAI, rig: GatewayRig) -> None:
    for number in range(50):
        raw = client.chat.completions.with_raw_response.create(
            model="any",
            messages=ASKED,
            max_tokens=4 + number % 9,
            temperature=(0.0, 0.6, 1.0)[number % 3],
            seed=number,
            n=1 + (number % 3 > 0 and number % 2),
            logprobs=True,
            extra_body={"return_token_ids": True},
        )
        answer: Any = raw.parse()
        call = rig.recorder.call(raw.headers["x-reef-agent-record-id"])
        assert call.capture_faults == ()
        assert list(tokens(call.prompt_token_ids)) == answer.prompt_token_ids
        for choice, answered in zip(call.choices, answer.choices, strict=True):
            assert list(tokens(choice.token_ids)) == answered.token_ids
            expected = [entry.logprob for entry in answered.logprobs.content]
            assert floats(choice.logprobs) == pytest.approx(expected, rel=1e-6)


def test_a_stream_has_the_tokens_of_the_same_greedy_request(client: openai.OpenAI, rig: GatewayRig) -> None:
    asked: Any = {"model": "any", "messages": ASKED, "max_tokens": 16, "temperature": 0}
    whole = client.chat.completions.with_raw_response.create(**asked)
    with client.chat.completions.with_streaming_response.create(**asked, stream=True) as stream:
        receipt = stream.headers["x-reef-agent-record-id"]
        lines = [line for line in stream.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    calls = [rig.recorder.call(name) for name in (whole.headers["x-reef-agent-record-id"], receipt)]
    assert calls[0].choices == calls[1].choices
    assert calls[1].capture_faults == ()


def test_a_tool_call_over_a_stream_is_the_one_of_the_same_request_without(
    client: openai.OpenAI, rig: GatewayRig
) -> None:
    """CASES 2, with a model without sense: what the call says is random, which tokens it took is not."""
    fields = {"a": {"type": "boolean"}, "b": {"type": "boolean"}}
    parameters: Any = {"type": "object", "properties": fields, "required": ["a", "b"]}
    parameters["additionalProperties"] = False
    function = {"name": "add_numbers", "parameters": parameters, "strict": True}
    asked: Any = {
        "model": "any",
        "messages": ASKED,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "add_numbers"}},
        "temperature": 0,
        "max_tokens": 64,
    }
    whole: Any = client.chat.completions.with_raw_response.create(**asked)
    stream: Any = client.chat.completions.with_raw_response.create(**asked, stream=True)
    pieces = [c.choices[0].delta.tool_calls for c in stream.parse() if c.choices]
    assert next(piece[0].function.name for piece in pieces if piece) == "add_numbers"
    calls = [rig.recorder.call(raw.headers["x-reef-agent-record-id"]) for raw in (whole, stream)]
    assert calls[0].choices[0].token_ids == calls[1].choices[0].token_ids
    for call in calls:
        assert call.capture_faults == ()
        assert SamplingConstraint.FORCED_TOOL in call.sampling.constraints
        assert len(tokens(call.choices[0].token_ids)) == call.usage.completion


def test_completions_stop_sequences_and_bad_requests(client: openai.OpenAI, rig: GatewayRig) -> None:
    raw = client.completions.with_raw_response.create(
        model="any", prompt="One, two,", max_tokens=6, stop=["zzzz"], seed=3
    )
    call = rig.recorder.call(raw.headers["x-reef-agent-record-id"])
    assert call.capture_faults == ()
    assert call.sampling.seed == 3
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="any", messages=ASKED, max_tokens=100_000)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="any", messages=ASKED, temperature=-1)


def test_anthropics_client_is_answered_by_the_same_engine(rig: GatewayRig) -> None:
    with anthropic.Anthropic(base_url=rig.url, api_key="none", max_retries=0) as client:
        message = client.messages.create(model="any", messages=ASKED, max_tokens=8)
        assert message.usage.output_tokens <= 8
        with client.messages.stream(model="any", messages=ASKED, max_tokens=8) as stream:
            final = stream.get_final_message()
        assert final.stop_reason in ("max_tokens", "end_turn")
        assert client.messages.count_tokens(model="any", messages=ASKED).input_tokens > 0
    assert rig.recorder.calls()[-1].capture_faults == ()
