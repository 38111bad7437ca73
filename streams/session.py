"""Pure: the session fold: calls and reports of `reef.interactions.v1` become experiences and outcomes.

`step` takes one event; `needs` tells which earlier ones it wants read back for it. Time is the record's own;
what falls due is settled before the event is looked at. Every call ends in one experience or by one reason.

Next: streams/trajectory.py
"""

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
from streams.calls import note_call, pending, reason_against, session_name, settle_oldest
from streams.credit import credit_arrival, expire_report, resolve
from streams.entries import Call, CallStatus, Fact, Forgotten, Report, ReportStatus, scenario_digest
from streams.moment import Moment
from streams.outputs import Fetched, FetchNeededError, Output, Timed
from streams.reports import note_report
from streams.scenario import configure
from streams.session_state import CALL, EXPERIENCE, FORGOTTEN, REPORT, SessionState
from streams.window import SessionMoment, settle

DUE_MAX = 2_000
"""Entries of a kind settled in one step; what is left falls due with the next event."""
FORGET_WINDOW_US = 14 * 24 * 60 * 60 * 1_000_000
"""How long an erasure is remembered: as long as the log may hold what it speaks of."""


def needs(state: SessionState, timed: Timed, fetched: Fetched) -> frozenset[int]:
    """Name the offsets to be read back before the step; asked again until there are none."""
    try:
        with state.journal:
            _advance(Moment(state=state, timed=timed, fetched=fetched))
            raise _TriedError
    except FetchNeededError as error:
        return error.offsets
    except _TriedError:
        return frozenset()


def step(state: SessionState, timed: Timed, fetched: Fetched) -> tuple[SessionState, tuple[Output, ...]]:
    """Take one event; on any error the state is as before. Raises FetchNeededError."""
    moment = Moment(state=state, timed=timed, fetched=fetched)
    with state.journal:
        _advance(moment)
    return state, tuple(moment.outputs)


class _TriedError(Exception):
    """Nothing is missing: the trial step is undone."""


def _advance(moment: SessionMoment) -> None:
    moment.state.advance(moment.timed.time_us)
    _expire(moment)
    mark, num_outputs = moment.state.journal.mark(), len(moment.outputs)
    try:
        _take(moment)
    except RejectedError as error:
        moment.state.journal.undo(mark)
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
    key = note_report(moment, event)
    if key is None:
        return
    resolve(moment, key)
    for waiting in moment.state.reports.superseding(event.scenario, event.report_id):
        resolve(moment, waiting)


def _take_scenario(moment: SessionMoment, event: ScenarioConfigured) -> None:
    moment.state.put_scenario(configure(event, moment.state.load_recipe))
    waiting = moment.state.reports.waiting_in(event.scenario)
    reports = [(key, report) for key in waiting if (report := moment.state.report(key)) is not None]
    for key, _ in sorted(reports, key=lambda item: item[1].offset):
        resolve(moment, key)


def _take_erasure(moment: SessionMoment, event: ErasureRequested) -> None:
    state = moment.state
    state.meet(event.scenario)
    names: list[str] = list(event.receipts)
    receipts = list(event.receipts)
    if event.session is not None:
        route = route_of_session(event.scenario, event.session)
        names.append(session_name(route))
        receipts += [
            name for name in state.routes.waiting(route) if pending(moment, name).facts & Fact.TAGGED
        ]
    forgotten = Forgotten(moment.timed.offset, moment.state.now_us + FORGET_WINDOW_US)
    for name in names:
        state.put_forgotten(name, forgotten)
    for receipt in dict.fromkeys(receipts):
        call = state.call(receipt)
        is_waiting = call is not None and call.status is CallStatus.PENDING
        if call is not None and is_waiting and call.scenario == scenario_digest(event.scenario):
            settle(moment, receipt, call, OutcomeReason.FORGOTTEN)
    moment.say(event, EXPERIENCE)


def _expire(moment: SessionMoment) -> None:
    """Settle what has fallen due; reports first, since calls are held until theirs have waited."""
    state = moment.state
    for _, _, key in state.due(REPORT, DUE_MAX):
        _expire_report(moment, key)
    for _, _, receipt in state.due(CALL, DUE_MAX):
        call = state.call(Receipt(receipt))
        assert call is not None, receipt
        _expire_call(moment, Receipt(receipt), call)
    for kind in (EXPERIENCE, FORGOTTEN):
        for _, _, key in state.due(kind, DUE_MAX):
            state.remove(kind, key)


def _expire_report(moment: SessionMoment, key: str) -> None:
    report: Report | None = moment.state.report(key)
    if report is None or report.deadline_us > moment.state.now_us:
        return  # an earlier one took its place in this very step
    if report.status is ReportStatus.WAITING:
        expire_report(moment, key, report)
    else:
        moment.state.put_report(key, None)


def _expire_call(moment: SessionMoment, receipt: Receipt, call: Call) -> None:
    if call.status is not CallStatus.PENDING:
        moment.state.put_call(receipt, None)
        return
    scenario = moment.state.scenarios[moment.state.name_of(call.scenario)]
    reason = reason_against(call, scenario)
    if reason is None:
        is_reported = call.facts & Fact.REPORTED
        reason = OutcomeReason.NO_REWARD if is_reported else OutcomeReason.NO_FEEDBACK
    settle(moment, receipt, call, reason)
