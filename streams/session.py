"""Pure: the session fold: calls and reports of `reef.interactions.v1` become experiences and outcomes.

`step` takes one event; `needs` tells which earlier ones it wants read back for it. Time is the record's own;
what falls due is settled before the event is looked at. Every call ends in one experience or by one reason.

Next: streams/trajectory.py
"""

from functools import partial

from schemas.errors import RejectedError
from schemas.events import (
    ClockTicked,
    ErasureRequested,
    FeedbackReported,
    InferenceCompleted,
    OutcomeReason,
    ScenarioConfigured,
)
from schemas.ids import Receipt, route_of_session
from schemas.topics import EXPERIENCE
from streams.calls import note_call, pending, reason_against, session_name, settle_oldest
from streams.credit import credit_arrival, expire_report, resolve, take_arriving
from streams.entries import Call, Fact, Forgotten, ReportStatus, is_pending, scenario_digest
from streams.moment import Moment
from streams.outputs import Fetched, FetchNeededError, Output, Timed
from streams.reports import arriving_report
from streams.scenario import configure
from streams.session_state import CALL, REPORT, SessionState
from streams.session_state import EXPERIENCE as EXPERIENCE_ENTRY
from streams.window import SessionMoment, for_each, settle

DUE_MAX = 2_000
"""Entries settled in one step; what is left falls due with the next event."""
FORGET_WINDOW_US = 14 * 24 * 60 * 60 * 1_000_000
"""How long an erasure is remembered: as long as the log may hold what it speaks of."""


def needs(state: SessionState, timed: Timed, fetched: Fetched) -> frozenset[int]:
    """Name the offsets to be read back before the step; asked again until there are none."""
    before_us = state.now_us
    try:
        _advance(Moment(state=state, timed=timed, fetched=fetched))
    except FetchNeededError as error:
        return error.offsets
    finally:
        _undo(state, before_us)
    return frozenset()


def step(state: SessionState, timed: Timed, fetched: Fetched) -> tuple[SessionState, tuple[Output, ...]]:
    """Take one event; on any error the state is as before. Raises FetchNeededError."""
    before_us, has_ended = state.now_us, False
    moment = Moment(state=state, timed=timed, fetched=fetched)
    try:
        _advance(moment)
        state.journal.keep()
        has_ended = True
    finally:
        if not has_ended:
            _undo(state, before_us)
    return state, tuple(moment.outputs)


def _undo(state: SessionState, before_us: int) -> None:
    state.journal.undo()
    state.move_time(before_us)


def _advance(moment: SessionMoment) -> None:
    state = moment.state
    if moment.timed.time_us > state.now_us:
        state.move_time(moment.timed.time_us)
    if due := state.due(DUE_MAX):
        for_each(moment, due, partial(_expire, moment))
    mark, num_outputs = state.journal.mark(), len(moment.outputs)
    try:
        _take(moment)
    except RejectedError as error:
        state.journal.undo(mark)
        del moment.outputs[num_outputs:]
        moment.refuse(moment.timed.offset, error)


def _take(moment: SessionMoment) -> None:
    match moment.timed.event:
        case InferenceCompleted() as event:
            _take_call(moment, event)
        case FeedbackReported() as event:
            _take_report(moment, event)
        case ScenarioConfigured() as event:
            _take_scenario(moment, event)
        case ErasureRequested() as event:
            _take_erasure(moment, event)
        case ClockTicked():
            pass
        case event:
            raise RejectedError(
                f"expected calls, reports, scenarios, erasures or ticks, got {type(event).__name__}: "
                "write it to its own topic",
                reason="unexpected_event",
            )


def _take_call(moment: SessionMoment, event: InferenceCompleted) -> None:
    call = note_call(moment, event)
    if call is not None:
        credit_arrival(moment, event.receipt, call.imported_id)
        settle_oldest(moment, event)


def _take_report(moment: SessionMoment, event: FeedbackReported) -> None:
    moment.require(moment.state.offsets_of_waiting(event.references))  # at once, and before any work is done
    arriving = arriving_report(moment, event)
    if arriving is None:
        return
    take_arriving(moment, *arriving)
    if superseding := moment.state.report_index.superseding(event.scenario, event.report_id):
        for_each(moment, superseding, partial(resolve, moment))


def _take_scenario(moment: SessionMoment, event: ScenarioConfigured) -> None:
    state = moment.state
    state.put_scenario(configure(event, state.load_recipe))
    waiting = state.report_index.waiting_in(event.scenario)
    reports = [(key, report) for key in waiting if (report := state.report(key)) is not None]
    in_log_order = [key for key, _ in sorted(reports, key=lambda item: item[1].offset)]
    for_each(moment, in_log_order, partial(resolve, moment))


def _take_erasure(moment: SessionMoment, event: ErasureRequested) -> None:
    state = moment.state
    receipts = list(event.receipts)
    if event.session is not None:
        route = route_of_session(event.scenario, event.session)
        receipts += [name for name in state.routes.waiting(route) if pending(state, name).facts & Fact.TAGGED]
    for name in erased_names(event):
        state.forgotten.put(name, Forgotten(moment.timed.offset, state.now_us + FORGET_WINDOW_US))
    for receipt in dict.fromkeys(receipts):
        call = state.call(receipt)
        if call is not None and is_pending(call) and call.scenario == scenario_digest(event.scenario):
            settle(moment, receipt, call, OutcomeReason.FORGOTTEN)
    moment.say(event, EXPERIENCE)


def erased_names(event: ErasureRequested) -> tuple[str, ...]:
    """Name what must not be learned from, as calls are looked up."""
    if event.session is None:
        return event.receipts
    return (*event.receipts, session_name(route_of_session(event.scenario, event.session)))


def _expire(moment: SessionMoment, due: tuple[str, str]) -> None:
    """Settle what has fallen due, unless an earlier settlement of this very step gave it longer."""
    state, (kind, key) = moment.state, due
    if kind == CALL:
        call = state.call(Receipt(key))
        if call is not None:
            _expire_call(moment, Receipt(key), call)
    elif kind == REPORT:
        _expire_report(moment, key)
    else:
        table = state.experiences if kind == EXPERIENCE_ENTRY else state.forgotten
        table.put(key, None)


def _expire_report(moment: SessionMoment, key: str) -> None:
    report = moment.state.report(key)
    if report is None or report.deadline_us > moment.state.now_us:
        return
    if report.status is ReportStatus.WAITING:
        expire_report(moment, key, report)
    else:
        moment.state.reports.put(key, None)


def _expire_call(moment: SessionMoment, receipt: Receipt, call: Call) -> None:
    state = moment.state
    scenario = state.scenario_of(call)
    is_due = call.deadline_us <= state.now_us
    if not is_pending(call):
        if is_due:
            state.calls.put(receipt, None)
        return
    reason = reason_against(call, scenario)
    if reason is None and not is_due:
        return
    if reason is None:
        reason = OutcomeReason.NO_REWARD if call.facts & Fact.REPORTED else OutcomeReason.NO_FEEDBACK
    settle(moment, receipt, call, reason)
