"""Shell: what the gateway asks of its courier, and what it is told.

Not events: nothing of this is kept, and both ends are of one version.

Next: gateway/courier.py
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from schemas.bus import KafkaAccess, is_of_record
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.logs import LogFormat
from schemas.records import Outgoing

KINDS: dict[str, type[ReefError]] = {
    kind.__name__: kind for kind in (RejectedError, UnavailableError, ConflictError)
}


class Start(Struct, frozen=True, tag=True, kw_only=True):
    """What a courier is told first; over the socket, as it holds secrets."""

    access: KafkaAccess
    """The log."""
    blobs_url: str
    """Where large fields are."""
    log_format: LogFormat = "json"
    """As the gateway's."""
    log_level: str = "info"
    """As the gateway's."""


class Open(Struct, frozen=True, tag=True, kw_only=True):
    """Open a producer."""

    errand: int
    """Named in the answer."""
    producer: int
    """How it is called from now on."""


class Carry(Struct, frozen=True, tag=True, kw_only=True):
    """Bring records to Kafka, in order."""

    errand: int
    """Named in the answer."""
    producer: int
    """By which producer."""
    records: Sequence[Outgoing]
    """With their blobs written."""


class Close(Struct, frozen=True, tag=True, kw_only=True):
    """Close a producer; there is no answer."""

    producer: int
    """Which one."""
    is_clean: bool
    """False after an error: then nothing that waits is sent."""


class Follow(Struct, frozen=True, tag=True, kw_only=True):
    """Read the log into the views from now on."""

    folder: Path
    """Where the views are."""
    num_partitions: int
    """Of each topic."""


class Failure(Struct, frozen=True, kw_only=True):
    """An expected error, on its way to the other process."""

    kind: str
    """One of the three, by name."""
    reason: str
    """For machines."""
    message: str
    """For people."""
    is_of_record: bool
    """Whether the record itself is at fault: then it will never be taken."""


class Done(Struct, frozen=True, tag=True, kw_only=True):
    """An errand is done, or failed."""

    errand: int
    """Which one."""
    failure: Failure | None
    """Why; None when it is done."""


class Followed(Struct, frozen=True, tag=True, kw_only=True):
    """How following goes, said when it changes and every second."""

    problem: str | None
    """What keeps the views from following; None when the log was read to its end."""
    as_of_us: int
    """Up to when they have the log; microseconds UTC, 0 before they do."""


class ScenariosMoved(Struct, frozen=True, tag=True, kw_only=True):
    """The views have news of scenarios, or may have had while no courier ran."""


Errand = Start | Open | Carry | Close | Follow
News = Done | Followed | ScenariosMoved


def failure_of(error: ReefError) -> Failure:
    """Pack an error."""
    kind = next(name for name, kind in KINDS.items() if isinstance(error, kind))
    return Failure(kind=kind, reason=error.reason, message=str(error), is_of_record=is_of_record(error))


def error_of(failure: Failure) -> ReefError:
    """Unpack an error; it has a cause where Kafka was at fault, and the cause says nothing."""
    error = KINDS[failure.kind](failure.message, reason=failure.reason)
    error.__cause__ = None if failure.is_of_record else ConnectionError()
    return error
