"""Pure: what a fold reads and what it answers: timed events in; statements, refusals, counts out.

Not the writing of them: the runner does that, all or nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from schemas.errors import RejectedError
from schemas.events import Event

EVENT_BYTES = 2_500
"""What an event in memory takes beside its bytes in the log, about: 500 for a report, 2,000 for a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """An event where it stands in the log."""

    event: Event
    """The event."""
    time_us: int
    """The record's time; microseconds UTC. The only clock of a fold."""
    partition: int
    """Of the fold's one topic."""
    offset: int
    """Within the partition."""
    key: bytes
    """The record's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """An event to be written."""

    event: Event
    """The event."""
    topic: str
    """Where it goes."""
    partition: int | None = None
    """Named where the key does not choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A record of the fold's log is refused; the runner adds its original bytes."""

    offset: int
    """The record, this one or an earlier one."""
    error: RejectedError
    """Why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Something happened that only a metric tells."""

    what: str
    """The metric's label."""


Output = Emitted | Refused | Counted
"""What a step answers."""

Fetched = Mapping[int, Timed | None]
"""Events read back by offset; None where the log no longer holds the record."""


class FetchNeededError(Exception):
    """A step cannot be taken before these events are read back."""

    def __init__(self, offsets: Iterable[int]) -> None:
        """Name the offsets."""
        super().__init__()
        self.offsets = frozenset(offsets)


class FoldState(Protocol):
    """What the runner keeps of a fold: entries by key, loaded at the start and written when they change."""

    now_us: int
    """The time of the last event; microseconds UTC."""

    def load(self, key: bytes, value: bytes) -> None:
        """Take in one entry of the state topic. Raises ValueError on an entry of another version."""

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Give the entries changed since the last call, by key; None where one is gone."""

    def num_pending(self) -> int:
        """Count what waits."""

    def earliest_deadline_us(self) -> int | None:
        """Give the time from which a tick would change something; None when nothing waits."""
