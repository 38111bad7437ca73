"""Pure: what the gateway asks of its courier, and what it is told.

Not events: nothing of this is kept, and both ends are of one version.

Next: gateway/courier.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.records import Outgoing

KINDS = (RejectedError, UnavailableError, ConflictError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open a producer."""

    errand: int
    """Named in the answer."""
    producer: int
    """How it is called from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carry:
    """Bring records to Kafka, in order."""

    errand: int
    """Named in the answer."""
    producer: int
    """By which producer."""
    records: Sequence[Outgoing]
    """With their blobs written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Close a producer; there is no answer."""

    producer: int
    """Which one."""
    is_clean: bool
    """False after an error: then nothing that waits is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Read the log into the views from now on."""

    folder: Path
    """Where the views are."""
    num_partitions: int
    """Of each topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An expected error, on its way to the other process."""

    kind: type[ReefError]
    """One of the three."""
    reason: str
    """For machines."""
    message: str
    """For people."""
    cause: type[BaseException] | None
    """What was translated: it tells a record's own fault from Kafka's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An errand is done, or failed."""

    errand: int
    """Which one."""
    failure: Failure | None
    """Why; None when it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How following goes, said when it changes."""

    problem: str | None
    """What keeps the views from following; None when the log was read to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenariosMoved:
    """The views have news of scenarios, or may have had while no courier ran."""


Errand = Open | Carry | Close | Follow
News = Done | Followed | ScenariosMoved


def failure_of(error: ReefError) -> Failure:
    """Pack an error."""
    kind = next(kind for kind in KINDS if isinstance(error, kind))
    cause = None if error.__cause__ is None else type(error.__cause__)
    return Failure(kind=kind, reason=error.reason, message=str(error), cause=cause)


def error_of(failure: Failure) -> ReefError:
    """Unpack an error; its cause is of the same type, and says nothing."""
    error = failure.kind(failure.message, reason=failure.reason)
    error.__cause__ = None if failure.cause is None else failure.cause.__new__(failure.cause)
    return error
