"""Pure: a call arrives: what was seen of it, whether it may train, and which reports have waited for it."""

from schemas.errors import RejectedError
from schemas.events import (
    CallOutcome,
    CaptureFault,
    Choice,
    InferenceCompleted,
    OutcomeReason,
    Sampling,
    TrainingTarget,
)
from schemas.ids import Receipt
from schemas.packed import BYTES_PER_TOKEN
from schemas.settings.streams import StreamsSettings
from streams.entries import Branch, Call, CallStatus, Fact, digest, scenario_digest
from streams.moment import SECOND_US
from streams.receipts import made_us, route_in
from streams.scenario import Scenario
from streams.session_state import SessionState
from streams.window import SessionMoment, limits_of, settle

REASONS = (
    (Fact.OPTED_OUT, OutcomeReason.OPTED_OUT),
    (Fact.CLIENT_ABORTED, OutcomeReason.CLIENT_ABORTED),
    (Fact.UPSTREAM_FAILED, OutcomeReason.UPSTREAM_FAILED),
    (Fact.TOKEN_GAP, OutcomeReason.TOKEN_GAP),
    (Fact.NOT_TOKEN_EXACT, OutcomeReason.NOT_TOKEN_EXACT),
    (Fact.GREEDY, OutcomeReason.GREEDY),
    (Fact.SAMPLING_TRUNCATED, OutcomeReason.SAMPLING_TRUNCATED),
)
"""The first that holds, and that the recipe cannot correct for, is named."""
_FORBIDDING = int(sum(fact for fact, _ in REASONS))
_TAGGED = int(Fact.TAGGED)


def note_call(moment: SessionMoment, event: InferenceCompleted) -> Call | None:
    """Remember a call that arrives, and settle it at once if it may not train; None when it is a repeat.

    Raises RejectedError.
    """
    state = moment.state
    if event.receipt in state.calls.entries:
        moment.count("repeated_call")
        return None
    scenario = state.meet(event.scenario)
    limits = limits_of(scenario)
    _check_call(state, event, limits)
    call = Call(
        CallStatus.PENDING,
        facts_of(event),
        moment.timed.offset,
        state.now_us,
        state.now_us + limits.join_window_s * SECOND_US,
        scenario_digest(event.scenario),
        _branches(event, scenario),
        event.imported_id or "",
    )
    state.calls.put(event.receipt, call)
    reason = _forgotten(state, event) or reason_against(call, scenario)
    if reason is not None:
        settle(moment, event.receipt, call, reason)
    return call


def settle_oldest(moment: SessionMoment, event: InferenceCompleted) -> None:
    """Keep a route within its limit."""
    state = moment.state
    limit = limits_of(state.scenario(event.scenario)).max_calls_per_route
    while state.routes.count(event.route) > limit:
        oldest = state.routes.oldest(event.route)
        assert oldest is not None, event.route
        settle(moment, oldest, pending(state, oldest), OutcomeReason.BUFFER_OVERFLOW)


def pending(state: SessionState, receipt: Receipt) -> Call:
    """Give a call that is known to wait."""
    call = state.call(receipt)
    assert call is not None, receipt
    return call


def facts_of(event: InferenceCompleted) -> int:
    """Sum up what was seen of a call."""
    facts = 0 if event.session is None else _TAGGED
    if event.is_opted_out:
        facts |= Fact.OPTED_OUT
    if event.outcome is not CallOutcome.COMPLETED:
        facts |= _BROKEN.get(event.outcome, Fact.NOT_TOKEN_EXACT)
    for fault in event.capture_faults:
        facts |= Fact.TOKEN_GAP if fault is CaptureFault.TOKEN_GAP else Fact.NOT_TOKEN_EXACT
    if not _is_whole(event):
        facts |= Fact.NOT_TOKEN_EXACT
    if event.sampling.temperature == 0:
        facts |= Fact.GREEDY
    if _is_truncated(event.sampling):
        facts |= Fact.SAMPLING_TRUNCATED
    return int(facts)


def reason_against(call: Call, scenario: Scenario | None) -> OutcomeReason | None:
    """Name why a call may not train; None when it may, or when its scenario is not configured yet."""
    if scenario is None:
        return None
    if scenario.is_retired:
        return OutcomeReason.SCENARIO_RETIRED
    if scenario.target is TrainingTarget.NONE:
        return OutcomeReason.RECORD_ONLY
    if not call.facts & _FORBIDDING:
        return None
    found = (reason for fact, reason in REASONS if call.facts & fact and not scenario.corrects(reason))
    return next(found, None)


_BROKEN = {CallOutcome.CLIENT_ABORTED: Fact.CLIENT_ABORTED, CallOutcome.UPSTREAM_FAILED: Fact.UPSTREAM_FAILED}


def _check_call(state: SessionState, event: InferenceCompleted, limits: StreamsSettings) -> None:
    if made_us(event.receipt) < state.now_us - limits.dedup_window_s * SECOND_US:
        raise RejectedError(
            f"expected a call begun within the last {limits.dedup_window_s} s, got an older one: nothing "
            "tells it from a repeat; a longer dedup_window_s would",
            reason="too_old",
        )
    if route_in(event.receipt) != event.route:
        raise RejectedError(
            f"expected the receipt's route {route_in(event.receipt)}, got {event.route}: write the receipt's",
            reason="route_mismatch",
        )


def _forgotten(state: SessionState, event: InferenceCompleted) -> OutcomeReason | None:
    if not state.forgotten.entries:
        return None
    names = [event.receipt] if event.session is None else [event.receipt, session_name(event.route)]
    return OutcomeReason.FORGOTTEN if any(state.is_forgotten(name) for name in names) else None


def session_name(route: str) -> str:
    """Name a tagged session, beside receipts, among what is forgotten."""
    return f"session {route}"


def _is_whole(event: InferenceCompleted) -> bool:
    choices = event.choices
    if not (event.prompt_token_ids and choices and choices[0].token_ids and event.weight_spans):
        return False
    return all([len(choice.logprobs) == len(choice.token_ids) for choice in choices])


def _is_truncated(sampling: Sampling) -> bool:
    return (
        sampling.top_p < 1
        or sampling.top_k > 0
        or sampling.min_p > 0
        or sampling.presence_penalty != 0
        or sampling.frequency_penalty != 0
        or sampling.repetition_penalty != 1
        or bool(sampling.constraints)
    )


def _branches(event: InferenceCompleted, scenario: Scenario | None) -> tuple[Branch, ...]:
    prompt = event.prompt_token_ids
    branches = [_branch(prompt, choice) for choice in event.choices]
    if scenario is not None and scenario.recipe.options.realign_threshold:
        branches.append(Branch(len(prompt) // BYTES_PER_TOKEN, digest(prompt)))
    return tuple(branches)


def _branch(prompt: bytes, choice: Choice) -> Branch:
    num_tokens = (len(prompt) + len(choice.token_ids)) // BYTES_PER_TOKEN
    return Branch(num_tokens, digest(prompt, choice.token_ids))
