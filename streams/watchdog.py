"""Shell: a thread that ends the process when a partition stands still while its log goes on (STREAMS 9).

A thread of its own with a client of its own, so that nothing which blocks the loop can block it. When the
broker does not answer it does nothing: waiting is right then.
"""

import asyncio
from collections.abc import Callable, Iterable
from threading import Event, Thread
from time import monotonic
from typing import NoReturn, Self

import structlog

from schemas.bus import BusLimits, KafkaAccess, Reader
from schemas.errors import ConflictError, UnavailableError
from schemas.records import Place
from streams.drive import Partition

STILL_S_MAX = 60.0
"""How long a partition may stand still while its log goes on."""
LOOK_S = 5.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Watchdog:
    """Watches partitions; used inside `with`."""

    def __init__(
        self,
        access: KafkaAccess,
        partitions: Callable[[], Iterable[Partition]],
        end_process: Callable[[str], NoReturn],
        *,
        still_s_max: float = STILL_S_MAX,
        look_s: float = LOOK_S,
        limits: BusLimits | None = None,
    ) -> None:
        """Ask `partitions` for those that are ours at each look."""
        self._access, self._partitions, self._end_process = access, partitions, end_process
        self._still_s_max, self._look_s = still_s_max, look_s
        self._limits = limits
        self._stop = Event()
        self._empty_until: dict[Place, tuple[int, int]] = {}
        """Where a look found markers only: from and until which offset."""
        self._thread = Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Watch no longer."""
        self._stop.set()
        self._thread.join(timeout=2 * self._look_s)

    def _watch(self) -> None:
        asyncio.run(self._watch_on())

    async def _watch_on(self) -> None:
        while not self._stop.is_set():
            await asyncio.sleep(self._look_s)
            still = [each for each in self._partitions() if self._is_still(each)]
            if still:
                await self._look_closer(still)

    def _is_still(self, partition: Partition) -> bool:
        return monotonic() - partition.progressed_s > self._still_s_max

    async def _look_closer(self, still: list[Partition]) -> None:
        try:
            async with Reader(self._access, limits=self._limits) as reader:
                ends = await reader.bounds([partition.place for partition in still])
                for partition in still:
                    has_more = await self._has_more(reader, partition, ends[partition.place].end)
                    if has_more and not self._stop.is_set():  # a look may outlive the leaving
                        self._end_process(f"{partition.place} stood still for {self._still_s_max:g} s")
        except (UnavailableError, ConflictError) as error:
            _log.warning("watchdog_sees_nothing", reason=error.reason)

    async def _has_more(self, reader: Reader, partition: Partition, end: int) -> bool:
        """Whether a committed record stands beyond what is folded; markers of transactions do not count."""
        place, first = partition.place, partition.next_offset
        if end <= first or self._empty_until.get(place) == (first, end):
            return False
        async for _ in reader.read_range(*place, first, end - 1):
            return self._is_still(partition)
        self._empty_until[place] = (first, end)
        return False
