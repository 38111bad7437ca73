"""Pure: the session fold's window: which calls it knows, when they were made, how one ends untrained."""

from schemas.events import OutcomeReason, OutcomeSettled, OutcomeState
from schemas.ids import RECEIPT_PREFIX, Receipt, ScenarioName, time_ms_of
from schemas.settings.streams import StreamsSettings
from schemas.topics import OUTCOMES
from streams.entries import Call, CallStatus
from streams.moment import SECOND_US, Moment
from streams.scenario import Scenario
from streams.session_state import SessionState

SessionMoment = Moment[SessionState]
"""A step of the session fold."""
UNCONFIGURED_LIMITS = StreamsSettings()
"""For calls that arrive before their scenario's configuration."""


def receipt_of(moment: SessionMoment, scenario: ScenarioName, reference: Receipt) -> Receipt | None:
    """Find the receipt of a known call that a report refers to; None when it has not come."""
    if not reference.startswith(RECEIPT_PREFIX):
        return moment.state.imported(scenario, reference)
    return reference if moment.state.is_call_of(scenario, reference) else None


def settle(moment: SessionMoment, receipt: Receipt, call: Call, reason: OutcomeReason) -> None:
    """End a call's story: it trains nothing. Its name is kept until it cannot come again."""
    scenario_name = moment.state.name_of(call.scenario)
    limits = limits_of(moment.state.scenarios[scenario_name])
    settled = call._replace(
        status=CallStatus.SETTLED,
        branches=(),
        deadline_us=max(moment.state.now_us + 1, forget_repeat_us(receipt, call.arrived_us, limits)),
    )
    moment.state.put_call(receipt, settled)
    outcome = OutcomeSettled(
        receipt=receipt,
        scenario=scenario_name,
        state=OutcomeState.DROPPED,
        reason=reason,
        notes=(),
        experience_id=None,
        batch_id=None,
        candidate_id=None,
        release_id=None,
        settled_at_us=moment.state.now_us,
    )
    moment.say(outcome, OUTCOMES)


def limits_of(scenario: Scenario | None) -> StreamsSettings:
    """Give a scenario's windows and limits."""
    return UNCONFIGURED_LIMITS if scenario is None else scenario.limits


def made_us(receipt: Receipt) -> int:
    """Read when a call was begun. Raises RejectedError."""
    return time_ms_of(receipt) * 1_000


def forget_repeat_us(receipt: Receipt, arrived_us: int, limits: StreamsSettings) -> int:
    """Give the time from which a repeated call is too old anyway, so that its name need not be kept."""
    window_us = limits.dedup_window_s * SECOND_US
    begun_us = min(made_us(receipt), arrived_us + window_us)  # a gateway's wrong clock keeps nothing for ever
    return max(arrived_us, begun_us) + window_us + 1
