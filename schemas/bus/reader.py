"""Shell: committed records in offset order, from named offsets: no group, no commit, no guess where to begin.

Whoever reads keeps the offset himself, beside what he made of it (in a transaction, a checkpoint, a table).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.structs import TopicPartition

from schemas.bus.access import BusLimits, KafkaAccess, client_options
from schemas.bus.failures import calling, until_open
from schemas.bus.patience import be_patient
from schemas.errors import ConflictError, UnavailableError
from schemas.events import Header
from schemas.records import Bounds, Place, Record

_CLOSE_DEADLINE_S = 10.0
_POLL_S = 0.05
_IDLE_POLL_S = 1.0


class Reader:
    """A consumer that reads committed records only; used inside `async with`.

    Either it follows partitions (`follow`, then `async for` or `poll`), or it reads ranges, one at a time.
    """

    def __init__(self, access: KafkaAccess, *, limits: BusLimits | None = None) -> None:
        self._access, self._limits = access, limits or BusLimits()
        self._client: AIOKafkaConsumer | None = None
        self._turn = 0

    async def __aenter__(self) -> Self:
        await until_open(self._open_once, "open a reader", self._limits.open_deadline_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        if client is not None:
            async with calling("close a reader", _CLOSE_DEADLINE_S):
                await client.stop()

    async def _open_once(self) -> None:
        client = AIOKafkaConsumer(**self._options())
        be_patient(client._client)
        try:
            await client.start()
            await asyncio.sleep(0)  # aiokafka cannot stop a consumer whose tasks never had a turn
            self._client = client
        finally:
            if self._client is None:
                await client.stop()

    def _options(self) -> dict[str, Any]:
        return client_options(self._access, self._limits) | {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "isolation_level": "read_committed",
            "fetch_max_wait_ms": self._limits.fetch_wait_ms,
            "fetch_min_bytes": self._limits.fetch_bytes_min,
            "fetch_max_bytes": self._limits.fetch_bytes_max,
            "max_partition_fetch_bytes": self._limits.partition_fetch_bytes_max,
        }

    @property
    def _consumer(self) -> AIOKafkaConsumer:
        assert self._client is not None, "use a reader inside `async with`"
        return self._client

    async def log_start(self, topic: str, partition: int) -> int:
        """Give the offset of the oldest record that the log still holds."""
        place = Place(topic, partition)
        return (await self.bounds([place]))[place].start

    async def end_offset(self, topic: str, partition: int) -> int:
        """Give the offset behind the newest committed record; open transactions stand at or behind it."""
        place = Place(topic, partition)
        return (await self.bounds([place]))[place].end

    async def bounds(self, places: Collection[Place]) -> Mapping[Place, Bounds]:
        """Give where these partitions begin and end, as `log_start` and `end_offset` do."""
        asked = [TopicPartition(*place) for place in places]
        async with calling("tell where logs begin and end", self._limits.deadline_s):
            starts = await self._consumer.beginning_offsets(asked)
            ends = await self._consumer.end_offsets(asked)
        return {Place(*place): Bounds(start=starts[place], end=ends[place]) for place in asked}

    async def offset_at(self, topic: str, partition: int, time_us: int) -> int:
        """Give the offset of the first record that is of this time or later; the end when there is none."""
        place = TopicPartition(topic, partition)
        async with calling("find an offset by time", self._limits.deadline_s):
            found = (await self._consumer.offsets_for_times({place: time_us // 1000}))[place]
        return await self.end_offset(topic, partition) if found is None else int(found.offset)

    async def follow(self, starts: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on, instead of any before.

        Raises ConflictError `log_truncated` or `beyond_end` when the log does not hold an offset: never is a
        record skipped in silence.
        """
        for place, bounds in (await self.bounds(starts)).items():
            _check_start(place, starts[place], bounds)
        self._seek(starts)

    def _seek(self, starts: Mapping[Place, int]) -> None:
        self._turn += 1
        self._consumer.assign([TopicPartition(*place) for place in starts])
        for place, offset in starts.items():
            self._consumer.seek(TopicPartition(*place), offset)

    async def poll(self, wait_s: float) -> tuple[Record, ...]:
        """Give records of the partitions followed, in offset order in each, or none after the wait.

        Raises ConflictError `log_truncated` when the log moved past us.
        """
        async with calling("hand out records", wait_s + self._limits.deadline_s):
            found = await self._consumer.getmany(
                timeout_ms=int(wait_s * 1000), max_records=self._limits.poll_records_max
            )
        return tuple(record_of(message) for messages in found.values() for message in messages)

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Give records of the partitions followed, for ever."""
        while True:
            for record in await self.poll(_IDLE_POLL_S):
                yield record

    async def read_range(self, topic: str, partition: int, first: int, last: int) -> AsyncIterator[Record]:
        """Give the committed records from offset `first` to `last`, both included; gaps are passed over.

        Raises ConflictError `log_truncated` when the log does not hold `first`, and UnavailableError when it
        does not move on: `last` must be below the committed end.
        """
        place = TopicPartition(topic, partition)
        self._seek({Place(topic, partition): first})
        turn, stall = self._turn, _Stall(f"{topic}/{partition} up to offset {last}", self._limits.stall_s_max)
        while (position := await self._consumer.position(place)) <= last:
            stall.check(position)
            records = await self._next_of(place)
            for record in records:
                if record.offset > last:
                    break
                yield record
                assert turn == self._turn, "a reader reads one range at a time"
        if turn == self._turn:
            self._consumer.pause(place)  # the next range must not wait for a fetch that nobody reads

    async def read_to_end(self, topic: str, partition: int, first: int) -> AsyncIterator[Record]:
        """Give the committed records from `first` to the end as it is now."""
        end = await self.end_offset(topic, partition)
        if first < end:
            async for record in self.read_range(topic, partition, first, end - 1):
                yield record

    async def _next_of(self, place: TopicPartition) -> Iterable[Record]:
        async with calling(f"hand out records of {place.topic}/{place.partition}", self._limits.deadline_s):
            found = await self._consumer.getmany(place, timeout_ms=int(_POLL_S * 1000))
        return [record_of(message) for message in found.get(place, ())]


class _Stall:
    """Gives up on a position that does not move."""

    def __init__(self, what: str, stall_s_max: float) -> None:
        self._what, self._stall_s_max = what, stall_s_max
        self._position, self._since_s = -1, 0.0

    def check(self, position: int) -> None:
        if position != self._position:
            self._position, self._since_s = position, monotonic()
        elif monotonic() - self._since_s > self._stall_s_max:
            raise UnavailableError(
                f"expected Kafka to hand out {self._what}, got nothing beyond {position} for "
                f"{self._stall_s_max:g} s: check that it runs, and that no transaction stays open",
                reason="stalled",
            )


def _check_start(place: Place, offset: int, bounds: Bounds) -> None:
    where = f"{place.topic}/{place.partition}"
    if offset < bounds.start:
        raise ConflictError(
            f"expected to go on at offset {offset} of {where}, but its log begins at {bounds.start}: "
            "records are gone unread; restore the topic, or decide to go on without them",
            reason="log_truncated",
        )
    if offset > bounds.end:
        raise ConflictError(
            f"expected to go on at offset {offset} of {where}, but its log ends at {bounds.end}: is this "
            "another cluster, or was the topic made anew?",
            reason="beyond_end",
        )


def record_of(message: ConsumerRecord) -> Record:
    """Take a record over from aiokafka."""
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=tuple([Header(name=name, value=value) for name, value in message.headers]),
        timestamp_us=message.timestamp * 1000,
    )
