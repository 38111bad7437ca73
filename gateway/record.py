"""Pure: a call becomes its event: what was asked, what was sampled, and whether the capture is exact.

Next: gateway/outbox.py
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.capture import Capture, CapturedChoice, packed_logprobs, packed_tokens
from gateway.serving import Serving
from schemas.events import (
    Api,
    CallOutcome,
    CaptureFault,
    Choice,
    InferenceCompleted,
    Sampling,
    Usage,
    WeightSpan,
)
from schemas.ids import Receipt, Route, ScenarioName, Session
from schemas.packed import JsonBytes, TokenIds

PROCESSED = "processed_logprobs"
"""The engine gives logprobs of the distribution that it sampled from."""


@dataclass(slots=True, kw_only=True)
class CallFacts:
    """What is known of a call before the engine answers: only read, not frozen, which triples its cost."""

    receipt: Receipt
    """Its name."""
    scenario: ScenarioName
    """The learning problem."""
    route: Route
    """The record's key."""
    session: Session | None
    """As tagged."""
    api: Api
    """As spoken."""
    model: str
    """The public name."""
    request: JsonBytes
    """The client's body."""
    sampling: Sampling
    """As sent."""
    faults: tuple[CaptureFault, ...]
    """Known beforehand."""
    logprobs_mode: str
    """Of the engine that answers."""
    request_id: str
    """Of the exchange."""
    serving: Serving
    """The release that begins the answer."""
    tags: Mapping[str, str]
    """As tagged."""
    is_opted_out: bool
    """As asked."""
    started_at_us: int
    """Microseconds UTC."""


def completed(
    facts: CallFacts,
    capture: Capture,
    *,
    outcome: CallOutcome,
    response: bytes,
    weight_spans: tuple[WeightSpan, ...],
    completed_at_us: int,
) -> InferenceCompleted:
    """State that a call was answered, wholly or in part."""
    choices, prompt = capture.ordered(), capture.prompt_token_ids
    return InferenceCompleted(
        receipt=facts.receipt,
        scenario=facts.scenario,
        route=facts.route,
        session=facts.session,
        api=facts.api,
        model=facts.model,
        outcome=outcome,
        request=facts.request,
        response=JsonBytes(response),
        prompt_token_ids=packed_tokens(prompt) if prompt else TokenIds(b""),
        choices=tuple(_choice(index, choice) for index, choice in choices),
        sampling=facts.sampling,
        usage=_usage(capture),
        logprobs_mode=facts.logprobs_mode,
        request_id=facts.request_id,
        tokenizer_digest=facts.serving.tokenizer_digest,
        chat_template_digest=facts.serving.chat_template_digest,
        release_id=facts.serving.release_id,
        weight_spans=weight_spans,
        tags=facts.tags,
        capture_faults=_faults(facts, capture, outcome),
        is_opted_out=facts.is_opted_out,
        imported_id=None,
        started_at_us=facts.started_at_us,
        completed_at_us=completed_at_us,
    )


def _choice(index: int, choice: CapturedChoice) -> Choice:
    return Choice(
        index=index,
        token_ids=packed_tokens(choice.token_ids),
        logprobs=packed_logprobs(choice.logprobs),
        finish_reason=choice.finish_reason,
    )


def _usage(capture: Capture) -> Usage:
    """Read the engine's count; of an answer that broke off, count what came."""
    usage = capture.usage or {}
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Usage(
        prompt=prompt if isinstance(prompt, int) else len(capture.prompt_token_ids or ()),
        completion=completion if isinstance(completion, int) else capture.num_completion_tokens(),
    )


def _faults(facts: CallFacts, capture: Capture, outcome: CallOutcome) -> tuple[CaptureFault, ...]:
    found = set(facts.faults)
    if not _is_exact(facts, capture):
        found.add(CaptureFault.NOT_TOKEN_EXACT)
    elif outcome is CallOutcome.COMPLETED and _has_gap(capture):
        found.add(CaptureFault.TOKEN_GAP)
    return tuple(sorted(found))


def _is_exact(facts: CallFacts, capture: Capture) -> bool:
    """Whether ids came at all, each with a logprob of the distribution that it was sampled from."""
    if facts.logprobs_mode != PROCESSED and facts.sampling.temperature not in (0.0, 1.0):
        return False
    if not capture.prompt_token_ids or not capture.has_shared_prompt:
        return False
    return bool(capture.choices) and all(
        choice.has_all_ids and len(choice.logprobs) == len(choice.token_ids)
        for choice in capture.choices.values()
    )


def _has_gap(capture: Capture) -> bool:
    """Whether the engine counted other tokens than it gave."""
    usage = capture.usage or {}
    return bool(
        usage.get("completion_tokens") != capture.num_completion_tokens()
        or usage.get("prompt_tokens") != len(capture.prompt_token_ids or ())
    )
