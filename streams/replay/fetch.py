"""Shell: an input partition out of Kafka into a spool, with a look at what holds for the whole replay.

Each record is decoded here and written down whole by the newest schema: from then on a replay depends on
neither Kafka nor blobs, nor on what a retention deletes meanwhile. What is beyond the range is only searched
for erasures.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from schemas.bus import KafkaAccess
from schemas.codec import BlobsNeededError, decode, encode, fingerprint
from schemas.contract import newest_versions
from schemas.errors import RejectedError
from schemas.events import ErasureRequested, Event
from schemas.records import Bounds, Place, Record
from schemas.topics import INTERACTIONS, TOPICS, key_of
from streams.replay.found import Found, Prelude, in_force
from streams.replay.source import LogSource
from streams.replay.spool import Spooled, SpoolWriter

TELL_RECORDS = 500
"""Progress is told after so many records."""

Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """One partition to be fetched."""

    access: KafkaAccess
    """The way to the log."""
    blobs_url: str
    """Where large fields are."""
    place: Place
    """The partition."""
    bounds: Bounds
    """The range."""
    log_end: int
    """Erasures are looked for until there."""
    begins_at_us: int
    """When the whole range begins, of all partitions; microseconds UTC."""
    prelude: tuple[Prelude, ...]
    """What was said before, for a range that leaves out a beginning."""
    path: Path
    """The spool to write."""


def fetch(task: Fetch, tell: Tell) -> Found:
    """Fetch one partition. Raises UnavailableError, ConflictError."""
    return asyncio.run(_fetched(task, tell))


async def _fetched(task: Fetch, tell: Tell) -> Found:
    found = Found()
    async with LogSource(task.access, task.blobs_url) as source:
        with SpoolWriter(task.path) as spool:
            _begin(task, spool, found)
            await _read(task, source, spool, found, tell)
        await _look_beyond(task, source, found)
    return found


def _begin(task: Fetch, spool: SpoolWriter, found: Found) -> None:
    """Write what was in force before the range, at the time when it begins."""
    if task.bounds.start == 0:
        return
    events = list(in_force(task.prelude, task.place, task.begins_at_us))
    for offset, event in enumerate(events, -len(events) - 1):  # -1 is nobody's: see refold
        found.note(event)
        spool.append(Spooled(offset, task.begins_at_us, key_of(event), encode(event)))


async def _read(task: Fetch, source: LogSource, spool: SpoolWriter, found: Found, tell: Tell) -> None:
    if task.bounds.start == task.bounds.end:
        return
    seen = task.bounds.start
    async for record in source.reader.read_range(*task.place, task.bounds.start, task.bounds.end - 1):
        try:
            event, value = await _whole(source, record)
        except RejectedError:
            found.num_undecodable += 1
            continue
        found.note(event)
        found.num_records += 1
        spool.append(Spooled(record.offset, record.timestamp_us, record.key or b"", value))
        if record.offset - seen >= TELL_RECORDS:
            tell(record.offset - seen)
            seen = record.offset
    tell(task.bounds.end - seen)


_NEWEST = frozenset(version.fingerprint for version in newest_versions().values())


async def _whole(source: LogSource, record: Record) -> tuple[Event, bytes]:
    """Give an event and its bytes, without blobs and by the newest schema. Raises RejectedError."""
    value = record.value or b""
    try:
        event = decode(value)
    except (BlobsNeededError, RejectedError):
        event = await source.resolve(record)
        return event, encode(event)
    if type(event) not in TOPICS[record.topic].events:
        raise RejectedError(f"{type(event).__name__} is no event of {record.topic}", reason="foreign_event")
    return event, value if value[2:10] in _NEWEST else encode(event)


async def _look_beyond(task: Fetch, source: LogSource, found: Found) -> None:
    if task.place.topic != INTERACTIONS or task.bounds.end >= task.log_end:
        return
    wanted = fingerprint(ErasureRequested)
    async for record in source.reader.read_range(*task.place, task.bounds.end, task.log_end - 1):
        if (record.value or b"")[2:10] == wanted:
            found.note(await source.resolve(record))
