"""A capture is exact, or the event says in which way it is not."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.capture import Capture
from gateway.probe import logprobs_mode_of
from gateway.record import PROCESSED, CallFacts, completed
from gateway.sampling import PLAIN_SAMPLING, sampling_of, written_out
from gateway.serving import OpenStreams, Spans
from schemas.errors import RejectedError
from schemas.events import (
    Api,
    CallOutcome,
    CaptureFault,
    InferenceCompleted,
    Sampling,
    SamplingConstraint,
    WeightSpan,
)
from schemas.ids import Receipt, ReleaseId, Route, ScenarioName
from schemas.packed import JsonBytes
from tests.gateway_rig import serving


def facts(*, sampling: Sampling = PLAIN_SAMPLING, logprobs_mode: str = PROCESSED) -> CallFacts:
    return CallFacts(
        receipt=Receipt("rec_x"),
        scenario=ScenarioName("default"),
        route=Route("0" * 16),
        session=None,
        api=Api.CHAT,
        model="m",
        request=JsonBytes(b"{}"),
        sampling=sampling,
        faults=(),
        logprobs_mode=logprobs_mode,
        request_id="r",
        serving=serving(),
        tags={},
        is_opted_out=False,
        started_at_us=1,
    )


def answered(**changes: Any) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"content": "ab"},
        "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -2.0}]},
        "token_ids": [1, 2],
        "finish_reason": "stop",
    }
    whole = {"choices": [choice], "usage": {"prompt_tokens": 2, "completion_tokens": 2}}
    choice |= changes.pop("choice", {})
    return {**whole, "prompt_token_ids": [8, 9], **changes}


def event(
    answer: dict[str, Any], facts: CallFacts, outcome: CallOutcome = CallOutcome.COMPLETED
) -> InferenceCompleted:
    capture = Capture()
    capture.answer(answer)
    return completed(facts, capture, outcome=outcome, response=b"{}", weight_spans=(), completed_at_us=2)


GAP, INEXACT = CaptureFault.TOKEN_GAP, CaptureFault.NOT_TOKEN_EXACT


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, ()),
        ({"usage": {"prompt_tokens": 2, "completion_tokens": 3}}, (GAP,)),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 2}}, (GAP,)),
        ({"usage": None}, (GAP,)),
        ({"prompt_token_ids": None}, (INEXACT,)),
        ({"choice": {"token_ids": None}}, (INEXACT,)),
        ({"choice": {"token_ids": [1, 2, 3]}}, (INEXACT,)),
        ({"choice": {"logprobs": None}}, (INEXACT,)),
        ({"choices": []}, (INEXACT,)),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, Any], faults: tuple[CaptureFault, ...]) -> None:
    assert event(answered(**changes), facts()).capture_faults == faults


@pytest.mark.parametrize(
    ("temperature", "mode", "faults"),
    [
        (0.3, "raw_logprobs", (INEXACT,)),
        (1.0, "raw_logprobs", ()),
        (0.3, PROCESSED, ()),
        (0.0, "unknown", ()),
    ],
)
def test_raw_logprobs_are_exact_only_where_the_temperature_changes_nothing(
    temperature: float, mode: str, faults: tuple[CaptureFault, ...]
) -> None:
    sampling = sampling_of({"temperature": temperature}, PLAIN_SAMPLING)
    found = event(answered(), facts(sampling=sampling, logprobs_mode=mode))
    assert found.capture_faults == faults
    assert found.logprobs_mode == mode


def test_an_answer_that_broke_off_counts_what_came() -> None:
    found = event(answered(usage=None), facts(), CallOutcome.CLIENT_ABORTED)
    assert (found.usage.prompt, found.usage.completion) == (2, 2)
    assert found.capture_faults == ()


@pytest.mark.parametrize(
    ("written", "recorded"),
    [(0.0, 0.0), (0.001, 0.01), (0.01, 0.01), (0.6, 0.6), (None, 1.0)],
)
def test_the_temperature_is_the_one_that_the_engine_used(written: float | None, recorded: float) -> None:
    assert sampling_of({"temperature": written}, PLAIN_SAMPLING).temperature == recorded


def test_defaults_are_written_where_the_client_said_nothing() -> None:
    sent = written_out({"top_p": 0.5, "top_k": None}, PLAIN_SAMPLING)
    assert sent == {
        "temperature": 1.0,
        "top_p": 0.5,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
    }


@pytest.mark.parametrize(
    ("body", "constraints"),
    [
        ({"tool_choice": "required"}, (SamplingConstraint.FORCED_TOOL,)),
        ({"tool_choice": {"type": "function"}}, (SamplingConstraint.FORCED_TOOL,)),
        ({"tool_choice": "auto"}, ()),
        ({"response_format": {"type": "text"}}, ()),
        ({"tools": [{"function": {"strict": True}}]}, (SamplingConstraint.STRUCTURED_OUTPUT,)),
        ({"tools": [{"function": {"name": "x"}}, 3]}, ()),
        ({"response_format": {"type": "json_object"}}, (SamplingConstraint.STRUCTURED_OUTPUT,)),
        ({"min_tokens": 3}, (SamplingConstraint.MIN_TOKENS,)),
        ({"min_tokens": 0}, ()),
        ({"bad_words": ["x"]}, (SamplingConstraint.BAD_WORDS,)),
        ({"allowed_token_ids": [1]}, (SamplingConstraint.ALLOWED_TOKEN_IDS,)),
    ],
)
def test_what_narrows_the_distribution_is_a_fact(
    body: dict[str, Any], constraints: tuple[SamplingConstraint, ...]
) -> None:
    assert sampling_of(body, PLAIN_SAMPLING).constraints == constraints


@pytest.mark.parametrize("value", ["1", True, [], float("inf")])
def test_a_parameter_that_is_no_finite_number_is_refused(value: Any) -> None:
    with pytest.raises(RejectedError, match="top_p"):
        sampling_of({"top_p": value}, PLAIN_SAMPLING)


def test_a_stream_across_two_swaps_has_a_span_each() -> None:
    streams = OpenStreams()
    spans = streams.open(serving(4), is_buffered=False)
    spans.add(3, 0.1)
    streams.close_spans(5)
    spans.add(2, 0.9)
    streams.close_spans(6)
    assert spans.finish() == (
        WeightSpan(release_seq=4, num_tokens=3),
        WeightSpan(release_seq=5, num_tokens=2),
    )
    assert streams.largest_gap_s(1.0) == pytest.approx(0.8)
    streams.remove(spans)
    assert len(streams) == 0


def test_the_largest_gap_counts_streams_that_stand_still_and_those_that_ended() -> None:
    streams = OpenStreams()
    ended, still, waiting = (streams.open(serving(4), is_buffered=False) for _ in range(3))
    for spans in (ended, still):
        spans.add(1, 10.0)
    streams.restart_gaps()
    ended.add(1, 10.3)
    streams.remove(ended)
    assert streams.largest_gap_s(10.1) == pytest.approx(0.3)
    assert streams.largest_gap_s(10.5) == pytest.approx(0.5)
    waiting.add(1, 11.0)  # a first token is waited for, which is no gap
    streams.remove(still)
    assert streams.largest_gap_s(11.1) == pytest.approx(0.3)
    streams.restart_gaps()
    assert streams.largest_gap_s(11.0) == 0.0


def test_a_cache_below_other_weights_has_another_salt() -> None:
    own = serving(4)
    below = replace(own, weights_release_id=serving(9).release_id)
    assert own.cache_salt == own.release_id
    assert below.cache_salt != own.cache_salt
    assert below.cache_salt != serving(9).release_id
    # vLLM refuses a call whose salt is longer than 128 characters or holds one of @ / \\ NUL.
    long = replace(own, release_id=ReleaseId("a" * 64), weights_release_id=ReleaseId("b" * 64))
    assert len(long.cache_salt) == 64
    assert long.cache_salt.isalnum()


def test_a_stream_that_had_no_token_yet_belongs_to_the_new_release() -> None:
    spans = Spans(serving(4), is_buffered=False)
    spans.close(5)
    spans.add(2, 0.0)
    assert spans.finish() == (WeightSpan(release_seq=5, num_tokens=2),)


def test_a_buffered_call_across_a_swap_does_not_know_its_split() -> None:
    spans = Spans(serving(4), is_buffered=True)
    spans.close(5)
    spans.add(7, 0.0)
    assert spans.finish() == (
        WeightSpan(release_seq=4, num_tokens=-1),
        WeightSpan(release_seq=5, num_tokens=-1),
    )


def probe_answer(*logprobs: float) -> dict[str, Any]:
    tops = [{"logprob": value} for value in logprobs]
    return {"choices": [{"logprobs": {"content": [{"top_logprobs": tops}]}}]}


@pytest.mark.parametrize(
    ("at_one", "at_three_tenths", "mode"),
    [
        ((-1.0, -2.0), (-0.1, -3.4), PROCESSED),
        ((-1.0, -2.0), (-1.0, -2.0), "raw_logprobs"),
        ((-1.0,), (-1.0,), "unknown"),
        ((), (), "unknown"),
    ],
)
def test_the_probe_tells_processed_logprobs_from_raw_ones(
    at_one: tuple[float, ...], at_three_tenths: tuple[float, ...], mode: str
) -> None:
    assert logprobs_mode_of(probe_answer(*at_one), probe_answer(*at_three_tenths)) == mode
