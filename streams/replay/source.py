"""Shell: the log that a replay reads: where it begins and ends, and its topics that are read whole.

Committed records only, and read only: there is no writer here.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import Any, Self, cast

from schemas.blobs import open_blob_store
from schemas.bus import BusLimits, KafkaAccess, Reader, Resolver, SchemaLog
from schemas.errors import RejectedError
from schemas.events import Event, ReleaseAdvanced, ReleasePublished, ScenarioConfigured
from schemas.records import Bounds, Place, Record
from schemas.topic_admin import describe_topics
from schemas.topics import COMMANDS, EXPERIENCE, INTERACTIONS, OUTCOMES, RELEASES, TRAINING
from streams.outputs import Emitted
from streams.relay import relay
from streams.replay.found import Prelude
from streams.replay.ranges import Point, before_log_start, checked

LIMITS = BusLimits(partition_fetch_bytes_max=4 * 1024 * 1024, fetch_bytes_max=32 * 1024 * 1024)
"""What is read from one end to the other is read in large pieces."""
READ_TOPICS = (INTERACTIONS, EXPERIENCE, TRAINING, OUTCOMES, COMMANDS, RELEASES)


class LogSource:
    """The log of a deployment; used inside `async with`."""

    def __init__(self, access: KafkaAccess, blobs_url: str) -> None:
        self._access, self._blobs = access, open_blob_store(blobs_url)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.reader = await self._open.enter_async_context(Reader(self._access, limits=LIMITS))
        schema_log = await self._open.enter_async_context(SchemaLog(self._access))
        self._resolver = Resolver(schema_log, self._blobs)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def resolve(self, record: Record) -> Event:
        """Decode a record. Raises RejectedError, UnavailableError."""
        return await self._resolver.resolve(record)

    async def places(self, *topics: str) -> tuple[Place, ...]:
        """List the partitions of topics. Raises RejectedError when one does not exist."""
        found = await describe_topics(self._access, topics)
        for topic in topics:
            if topic not in found:
                raise RejectedError(
                    f"expected the topic {topic}, found none: is kafka.bootstrap the cluster of this "
                    "deployment? `reef topics` shows what is there",
                    reason="unknown_topic",
                )
        return tuple([Place(topic, at) for topic in topics for at in range(found[topic].num_partitions)])

    async def events(self, *topics: str) -> AsyncIterator[tuple[Record, Event]]:
        """Read topics whole, as they are now; what cannot be decoded is left out."""
        for place in await self.places(*topics):
            start = await self.reader.log_start(*place)
            async for record in self.reader.read_to_end(*place, start):
                try:
                    event = await self.resolve(record)
                except RejectedError:
                    continue
                yield record, event

    async def range_between(
        self, held: Mapping[Place, Bounds], first: Point | None, last: Point | None
    ) -> Mapping[Place, Bounds]:
        """Find the offsets between two points. Raises RejectedError when the log does not hold them."""
        if first is not None and first.time_us is not None:
            await self._check_begin(held, first.said, first.time_us)
        wanted: dict[Place, Bounds] = {}
        for place, bounds in held.items():
            start = bounds.start if first is None else await self._offset(place, first)
            end = bounds.end if last is None else min(bounds.end, await self._offset(place, last))
            start = min(start, bounds.end)
            wanted[place] = Bounds(start=start, end=max(start, end))
        if (first or last) and all(bounds.end == bounds.start for bounds in wanted.values()):
            raise RejectedError(
                f"expected a range that holds records, got none from {first.said if first else 'the start'} "
                f"to {last.said if last else 'the end'}: is it in UTC?",
                reason="bad_range",
            )
        return checked(wanted, held)

    async def _offset(self, place: Place, point: Point) -> int:
        if point.offset is not None:
            return point.offset
        assert point.time_us is not None, point
        return await self.reader.offset_at(*place, point.time_us)

    async def _check_begin(self, held: Mapping[Place, Bounds], said: str, time_us: int) -> None:
        """Refuse a time before all that the log holds, or in what a retention has taken from a partition."""
        oldest: dict[Place, int] = {}
        for place, bounds in held.items():
            if bounds.start < bounds.end:
                oldest[place] = await self.first_time_us(place, bounds)
        for place, begins_at_us in oldest.items():
            if held[place].start > 0 and time_us < begins_at_us:
                raise before_log_start(said, f"at {begins_at_us} µs in {place.topic}/{place.partition}")
        if oldest and time_us < min(oldest.values()):
            raise before_log_start(said, f"at {min(oldest.values())} µs since 1970")

    async def first_time_us(self, place: Place, bounds: Bounds) -> int:
        """Give the time of the first record of a range; 0 when there is none."""
        if bounds.start < bounds.end:
            records = cast(Any, self.reader.read_range(*place, bounds.start, bounds.end - 1))
            async with aclosing(records):
                async for record in records:
                    return int(record.timestamp_us)
        return 0

    async def prelude(self) -> tuple[Prelude, ...]:
        """Read all configurations and releases ever, as a relay tells them: those topics are for ever."""
        said: list[Prelude] = []
        async for record, event in self.events(COMMANDS, RELEASES):
            if not isinstance(event, ScenarioConfigured | ReleasePublished):
                continue
            for output in relay(event, num_partitions=0):
                told = output.event if isinstance(output, Emitted) else None
                if isinstance(told, ScenarioConfigured | ReleaseAdvanced):
                    said.append(Prelude(time_us=record.timestamp_us, event=told))
        return tuple(sorted(said, key=lambda each: each.time_us))
