"""Shell: which partitions are ours, as Faust tells it: opened when assigned, paused while unsure."""

import asyncio
from collections.abc import Iterable, Mapping

from schemas.records import Place, Record
from streams.drive import Partition
from streams.processor import Processor
from streams.surroundings import Surroundings


class Ownership:
    """The partitions of one worker."""

    def __init__(self, processors: Iterable[Processor], partition: type[Partition] = Partition) -> None:
        """Own nothing yet."""
        self._partition = partition
        self._processors: Mapping[str, Processor] = {each.topic: each for each in processors}
        self._assigned: frozenset[Place] = frozenset()
        self.partitions: dict[Place, Partition] = {}
        self._closing: set[asyncio.Future[None]] = set()

    @property
    def topics(self) -> list[str]:
        """The logs that are folded."""
        return list(self._processors)

    def is_assigned(self, place: Place) -> bool:
        """Whether a partition is ours, as far as is known."""
        return place in self._assigned

    def expect(self, places: Iterable[Place]) -> None:
        """Know what is ours from here on."""
        self._assigned = frozenset(place for place in places if place.topic in self._processors)

    def take(self, around: Surroundings) -> None:
        """Go on with what is kept, close what is gone, open what is new.

        Nothing is waited for: a rebalance that takes longer than its timeout begins again, for everybody. An
        owner that closes late is fenced by the next one.
        """
        for place in set(self.partitions) - self._assigned:
            closing = asyncio.ensure_future(self.partitions.pop(place).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        for place in sorted(self._assigned):
            if place in self.partitions:
                self.partitions[place].resume()
                continue
            opened = self._partition(self._processors[place.topic], place.partition, around)
            self.partitions[place] = opened
            opened.start()

    def revoke(self) -> None:
        """Begin no batch until the new assignment is known."""
        for partition in self.partitions.values():
            partition.pause()

    async def deliver(self, records: Iterable[Record]) -> None:
        """Hand records to their partitions.

        Those of a partition that is not opened yet are passed over: it reads the log to its end when it is.
        """
        by_place: dict[Place, list[Record]] = {}
        for record in records:
            by_place.setdefault(Place(record.topic, record.partition), []).append(record)
        for place, of_place in by_place.items():
            partition = self.partitions.get(place)
            if partition is not None:
                await partition.offer(of_place)

    async def close(self) -> None:
        """End all, each after the batch at hand."""
        self._assigned = frozenset()
        partitions, self.partitions = self.partitions, {}
        await asyncio.gather(*(partition.close() for partition in partitions.values()), *self._closing)
