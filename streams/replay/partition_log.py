"""Shell: a spool as a fold wants it: events in order, and each earlier one by its offset.

What a step wants back is always there at once, so `needs` is never asked; an offset that the range does not
hold reads as None, as one that a log has deleted does.
"""

from collections.abc import Iterator, Mapping

from schemas.codec import decode
from streams.outputs import Timed
from streams.recent import Recent
from streams.replay.spool import Spool, Spooled

RECENT_BYTES_MAX = 32 * 1024 * 1024
"""Of events kept at hand, as memory."""


class PartitionLog(Mapping[int, Timed | None]):
    """The events of one partition."""

    def __init__(self, spool: Spool, partition: int, recent_bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._spool, self._partition = spool, partition
        self._recent = Recent(recent_bytes_max)

    def __contains__(self, offset: object) -> bool:
        """Answer for every offset: what is not there is known not to be there."""
        return isinstance(offset, int)

    def __getitem__(self, offset: int) -> Timed | None:
        if offset in self._recent.events:
            return self._recent.events[offset]
        found = self._spool.find(offset)
        return None if found is None else self._timed(found)

    def __iter__(self) -> Iterator[int]:
        return (record.offset for record in self._spool)

    def __len__(self) -> int:
        return len(self._spool)

    def timed(self) -> Iterator[Timed]:
        """Give the events in order, and keep the latest at hand."""
        for record in self._spool:
            timed = self._timed(record)
            self._recent.keep(timed, len(record.value))
            yield timed

    def _timed(self, record: Spooled) -> Timed:
        return Timed(
            event=decode(record.value),
            time_us=record.time_us,
            partition=self._partition,
            offset=record.offset,
            key=record.key,
        )
