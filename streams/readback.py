"""Shell: earlier events of a partition by offset: most are at hand, the rest is read from the log.

Not a cache of the state: what is forgotten here is read again.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from schemas.bus import Reader, Record, Resolver
from schemas.errors import ConflictError
from schemas.events import Event
from schemas.records import Place
from streams.outputs import Timed
from streams.recent import Recent

RECENT_BYTES_MAX = 8 * 1024 * 1024
"""Of events kept at hand, as memory."""
RANGE_GAP_MAX = 20
"""Offsets read for nothing rather than beginning another range."""


class ReadBack:
    """Events of one partition."""

    def __init__(self, place: Place, reader: Reader, resolver: Resolver) -> None:
        """Read with a reader that nobody else uses meanwhile."""
        self._place, self._reader, self._resolver = place, reader, resolver
        self._recent = Recent(RECENT_BYTES_MAX)
        self.at_hand = self._recent.events
        """Recent events by offset: what most steps want, without asking."""

    def remember(self, timed: Timed, size_bytes: int) -> None:
        """Keep an event at hand."""
        self._recent.keep(timed, size_bytes)

    async def fetch(self, offsets: Iterable[int]) -> dict[int, Timed | None]:
        """Give events by offset; None where the log no longer holds the record. Raises UnavailableError."""
        wanted = set(offsets)
        found = {offset: self.at_hand[offset] for offset in wanted & self.at_hand.keys()}
        return found | await self._read(sorted(wanted - self.at_hand.keys()))

    async def fetch_record(self, offset: int) -> Record | None:
        """Give a record as it was written; None when the log no longer holds it. Raises UnavailableError."""
        records = [record async for record in self._range(offset, offset)]
        return records[0] if records else None

    async def _read(self, offsets: Sequence[int]) -> dict[int, Timed | None]:
        found: dict[int, Timed | None] = dict.fromkeys(offsets)
        if not offsets:
            return found
        start = await self._reader.log_start(*self._place)
        held = [offset for offset in offsets if offset >= start]
        for first, last in _ranges(held):
            async for record in self._range(first, last):
                if record.offset in found:
                    timed = timed_of(record, await self._resolver.resolve(record))
                    found[record.offset] = timed
                    self.remember(timed, len(record.value or b""))
        return found

    async def _range(self, first: int, last: int) -> AsyncIterator[Record]:
        try:
            async for record in self._reader.read_range(*self._place, first, last):
                yield record
        except ConflictError as error:
            if error.reason != "log_truncated":
                raise


def timed_of(record: Record, event: Event) -> Timed:
    """Place an event in the log."""
    return Timed(
        event=event,
        time_us=record.timestamp_us,
        partition=record.partition,
        offset=record.offset,
        key=record.key or b"",
    )


def _ranges(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Group sorted offsets into few ranges."""
    if not offsets:
        return
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset - last > RANGE_GAP_MAX:
            yield first, last
            first = offset
        last = offset
    yield first, last
