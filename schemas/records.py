"""Pure: a record of the log as it was read or is to be written: bytes and their place, not yet an event."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.errors import ReefError
from schemas.events import EventRejected, Header
from schemas.ids import derived_id
from schemas.packed import OriginalBytes


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    """The topic's name."""
    partition: int
    """Counts from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Which offsets of a partition can be read."""

    start: int
    """Of the oldest record that the log still holds."""
    end: int
    """Behind the newest committed record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A committed record."""

    topic: str
    """Where it stands."""
    partition: int
    """Its partition, from 0."""
    offset: int
    """Its offset within the partition."""
    key: bytes | None
    """As written."""
    value: bytes | None
    """As written; None is a tombstone."""
    headers: tuple[Header, ...]
    """In order; names may repeat."""
    timestamp_us: int
    """Its time in the log, in whole milliseconds; microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A record to be written; blobs that it names are in their store already."""

    topic: str
    """Where it goes."""
    key: bytes
    """Chooses the partition, unless one is named."""
    value: bytes | None
    """The bytes; None is a tombstone."""
    partition: int | None = None
    """Named where the key does not choose."""
    headers: Sequence[Header] = ()
    """In order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a record now stands, for good."""

    topic: str
    """The topic."""
    partition: int
    """Its partition."""
    offset: int
    """Its offset; -1 when the broker knew it from an earlier try and no longer tells where it stands."""


def rejection(record: Record, error: ReefError, stage: str) -> EventRejected:
    """State that a record was refused, with all its bytes; the same place gives the same id."""
    return EventRejected(
        event_id=derived_id("EventRejected", record.topic, str(record.partition), str(record.offset)),
        stage=stage,
        reason=error.reason,
        detail=str(error),
        source_topic=record.topic,
        source_partition=record.partition,
        source_offset=record.offset,
        key=None if record.key is None else OriginalBytes(record.key),
        value=None if record.value is None else OriginalBytes(record.value),
        headers=record.headers,
        rejected_at_us=record.timestamp_us,
    )
