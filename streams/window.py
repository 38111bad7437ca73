"""Pure: the session fold's window: which calls it knows, how long, and how one ends untrained."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from schemas.events import OutcomeReason, OutcomeSettled, OutcomeState
from schemas.ids import RECEIPT_PREFIX, Receipt, ScenarioName
from schemas.settings.streams import StreamsSettings
from schemas.topics import OUTCOMES
from streams.entries import Call, CallStatus
from streams.moment import SECOND_US, Moment
from streams.outputs import FetchNeededError
from streams.receipts import made_us
from streams.scenario import Scenario
from streams.session_state import SessionState

Item = TypeVar("Item")

SessionMoment = Moment[SessionState]
"""A step of the session fold."""
UNCONFIGURED_LIMITS = StreamsSettings()
"""For calls that arrive before their scenario's configuration."""


def for_each(moment: SessionMoment, items: Iterable[Item], take: Callable[[Item], None]) -> None:
    """Take items that do not need each other; what any of them wants read back is asked for together.

    One after another would ask the log, and begin the step anew, once for each. Raises FetchNeededError.
    """
    journal, wanted = moment.state.journal, set[int]()
    for item in items:
        mark = journal.mark()
        try:
            take(item)
        except FetchNeededError as error:
            wanted |= error.offsets
            journal.undo(mark)
    if wanted:
        raise FetchNeededError(wanted)


def limits_of(scenario: Scenario | None) -> StreamsSettings:
    """Give a scenario's windows and limits."""
    return UNCONFIGURED_LIMITS if scenario is None else scenario.limits


def receipt_of(state: SessionState, scenario: ScenarioName, reference: Receipt) -> Receipt | None:
    """Find the receipt of a known call that a report refers to; None when it has not come."""
    if not reference.startswith(RECEIPT_PREFIX):
        return state.imported(scenario, reference)
    return reference if state.is_call_of(scenario, reference) else None


def keep_until_us(state: SessionState, limits: StreamsSettings) -> int:
    """Give the time until which repeats and corrections are recognised."""
    return state.now_us + limits.dedup_window_s * SECOND_US


def forget_repeat_us(receipt: Receipt, arrived_us: int, limits: StreamsSettings) -> int:
    """Give the time from which a repeated call is too old anyway, so that its name need not be kept."""
    window_us = limits.dedup_window_s * SECOND_US
    begun_us = min(made_us(receipt), arrived_us + window_us)  # a gateway's wrong clock keeps nothing for ever
    return max(arrived_us, begun_us) + window_us + 1


def settle(moment: SessionMoment, receipt: Receipt, call: Call, reason: OutcomeReason) -> None:
    """End a call's story: it trains nothing. Its name is kept until it cannot come again."""
    state = moment.state
    forget_us = forget_repeat_us(receipt, call.arrived_us, limits_of(state.scenario_of(call)))
    end_call(state, receipt, call, CallStatus.SETTLED, max(state.now_us + 1, forget_us))
    outcome = OutcomeSettled(
        receipt=receipt,
        scenario=state.name_of(call.scenario),
        state=OutcomeState.DROPPED,
        reason=reason,
        notes=(),
        experience_id=None,
        batch_id=None,
        candidate_id=None,
        release_id=None,
        settled_at_us=state.now_us,
    )
    moment.say(outcome, OUTCOMES)


def end_call(state: SessionState, receipt: Receipt, call: Call, status: CallStatus, until_us: int) -> None:
    """Shrink a call's entry to what tells a repeat."""
    ended = Call(
        status, call.facts, call.offset, call.arrived_us, until_us, call.scenario, (), call.imported_id
    )
    state.calls.put(receipt, ended)
