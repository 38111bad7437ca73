"""Pure: refused inputs with their original bytes, as events of `reef.rejected.v1`."""

from dataclasses import dataclass

from schemas.packed import OriginalBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One header of a Kafka record; names may repeat."""

    name: str
    """The header's key."""
    value: bytes | None
    """Its bytes; None as in the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRejected:
    """An input was refused; nothing of it was lost."""

    event_id: str
    """Derived from the place of the refused record."""
    stage: str
    """Who refused it: `codec`, `session`, `batch`, `relay`, `outbox` …"""
    reason: str
    """One word for machines."""
    detail: str
    """What was expected, what came, what to do."""
    source_topic: str
    """Where the record stands."""
    source_partition: int
    """Its partition; -1 when it never reached a topic."""
    source_offset: int
    """Its offset; -1 when it never reached a topic."""
    key: OriginalBytes | None
    """The record's key."""
    value: OriginalBytes | None
    """The record's value."""
    headers: tuple[Header, ...]
    """The record's headers, in order."""
    rejected_at_us: int
    """Record time of the refused record; microseconds UTC."""
