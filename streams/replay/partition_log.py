"""Shell: a spool as a fold wants it: events in order, and each earlier one by its offset.

What a step wants back is always there at once, so `needs` is never asked; an offset that the range does not
hold reads as None, as one that a log has deleted does.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from schemas.codec import decode
from streams.outputs import EVENT_BYTES, Timed
from streams.replay.spool import Spool, Spooled

RECENT_BYTES_MAX = 32 * 1024 * 1024
"""Of events kept at hand, as memory; a call is usually reported on soon."""


class PartitionLog(Mapping[int, Timed | None]):
    """The events of one partition."""

    def __init__(self, spool: Spool, partition: int, recent_bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._spool, self._partition, self._recent_bytes_max = spool, partition, recent_bytes_max
        self._recent: OrderedDict[int, tuple[Timed, int]] = OrderedDict()
        self._recent_bytes = 0

    def __contains__(self, offset: object) -> bool:
        """Answer for every offset: what is not there is known not to be there."""
        return isinstance(offset, int)

    def __getitem__(self, offset: int) -> Timed | None:
        if offset in self._recent:
            return self._recent[offset][0]
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
            self._remember(timed, len(record.value))
            yield timed

    def _timed(self, record: Spooled) -> Timed:
        return Timed(
            event=decode(record.value),
            time_us=record.time_us,
            partition=self._partition,
            offset=record.offset,
            key=record.key,
        )

    def _remember(self, timed: Timed, size_bytes: int) -> None:
        self._recent[timed.offset] = (timed, size_bytes + EVENT_BYTES)
        self._recent_bytes += size_bytes + EVENT_BYTES
        while self._recent_bytes > self._recent_bytes_max:
            _, (_, forgotten_bytes) = self._recent.popitem(last=False)
            self._recent_bytes -= forgotten_bytes
