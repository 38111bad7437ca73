"""Pure: one step of the session fold as it is taken: the state, the event, what was said so far."""

from dataclasses import dataclass, field

from schemas.errors import RejectedError
from schemas.events import (
    Event,
    FeedbackReported,
    InferenceCompleted,
    OutcomeReason,
    OutcomeSettled,
    OutcomeState,
)
from schemas.ids import RECEIPT_PREFIX, Receipt, ScenarioName, time_ms_of
from schemas.settings.streams import StreamsSettings
from schemas.topics import EXPERIENCE, OUTCOMES
from streams.entries import Call, CallStatus
from streams.outputs import Counted, Emitted, Fetched, FetchNeededError, Output, Refused, Timed
from streams.scenario import Scenario
from streams.session_state import SessionState

SECOND_US = 1_000_000
UNCONFIGURED_LIMITS = StreamsSettings()
"""For calls that arrive before their scenario's configuration."""


@dataclass(slots=True, kw_only=True)
class Moment:
    """A step being taken."""

    state: SessionState
    """Changed in place, undone if the step fails."""
    timed: Timed
    """The event that causes the step."""
    fetched: Fetched
    """What was read back for it."""
    outputs: list[Output] = field(default_factory=list)
    """What is said, in order."""
    num_experiences: int = 0
    """Experiences caused by this event so far."""

    @property
    def now_us(self) -> int:
        """The partition's time."""
        return self.state.now_us

    def say(self, event: Event, topic: str = EXPERIENCE) -> None:
        """State a fact."""
        self.outputs.append(Emitted(event=event, topic=topic))

    def count(self, what: str) -> None:
        """Count what only a metric tells."""
        self.outputs.append(Counted(what=what))

    def refuse(self, offset: int, error: RejectedError) -> None:
        """Refuse a record of this log."""
        self.outputs.append(Refused(offset=offset, error=error))

    def require(self, offsets: list[int]) -> None:
        """Ask for several events at once. Raises FetchNeededError."""
        missing = [at for at in offsets if at != self.timed.offset and at not in self.fetched]
        if missing:
            raise FetchNeededError(missing)

    def read(self, offset: int) -> Event | None:
        """Read an event back; None when the log no longer holds it. Raises FetchNeededError."""
        if offset == self.timed.offset:
            return self.timed.event
        self.require([offset])
        found = self.fetched[offset]
        return None if found is None else found.event

    def read_call(self, offset: int) -> InferenceCompleted | None:
        """Read a call back."""
        event = self.read(offset)
        assert event is None or isinstance(event, InferenceCompleted), (offset, type(event))
        return event

    def read_report(self, offset: int) -> FeedbackReported | None:
        """Read a report back."""
        event = self.read(offset)
        assert event is None or isinstance(event, FeedbackReported), (offset, type(event))
        return event

    def receipt_of(self, scenario: ScenarioName, reference: Receipt) -> Receipt | None:
        """Find the receipt of a known call that a report refers to; None when it has not come."""
        if not reference.startswith(RECEIPT_PREFIX):
            return self.state.imported(scenario, reference)
        return reference if self.state.is_call_of(scenario, reference) else None

    def settle(self, receipt: Receipt, call: Call, reason: OutcomeReason) -> None:
        """End a call's story: it trains nothing. Its name is kept until it cannot come again."""
        scenario_name = self.state.name_of(call.scenario)
        limits = limits_of(self.state.scenarios[scenario_name])
        settled = call._replace(
            status=CallStatus.SETTLED,
            branches=(),
            deadline_us=max(self.now_us + 1, forget_repeat_us(receipt, call.arrived_us, limits)),
        )
        self.state.put_call(receipt, settled)
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
            settled_at_us=self.now_us,
        )
        self.say(outcome, OUTCOMES)


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
