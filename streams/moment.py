"""Pure: one step of a fold as it is taken: the state, the event, and what was said so far."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from schemas.errors import RejectedError
from schemas.events import Event
from streams.outputs import Counted, Emitted, Fetched, FetchNeededError, Output, Refused, Timed

SECOND_US = 1_000_000

State = TypeVar("State")
Kind = TypeVar("Kind")


@dataclass(slots=True, kw_only=True)
class Moment(Generic[State]):
    """A step being taken."""

    state: State
    """Changed in place, undone if the step fails."""
    timed: Timed
    """The event that causes the step."""
    fetched: Fetched
    """What was read back for it."""
    outputs: list[Output] = field(default_factory=list)
    """What is said, in order."""
    num_experiences: int = 0
    """Experiences caused by this event so far."""

    def say(self, event: Event, topic: str) -> None:
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

    def read(self, offset: int, kind: type[Kind]) -> Kind | None:
        """Read an event back; None when the log no longer holds it. Raises FetchNeededError."""
        if offset == self.timed.offset:
            found: Timed | None = self.timed
        elif offset in self.fetched:
            found = self.fetched[offset]
        else:
            raise FetchNeededError([offset])
        if found is None:
            return None
        assert isinstance(found.event, kind), (offset, type(found.event))
        return found.event
