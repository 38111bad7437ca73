"""One partition of the session fold on a real broker, without Faust: its own topics, records handed over."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, time_ns
from typing import Any, NoReturn
from uuid import uuid4

from prometheus_client import CollectorRegistry

from schemas.blobs import BlobStore, open_blob_store
from schemas.bus import BusLimits, KafkaAccess, Publisher, Reader, Record, Resolver, SchemaLog
from schemas.events import Event, EventRejected
from schemas.topic_admin import ensure_topics
from schemas.topics import REJECTED, Cleanup, TopicSpec
from streams import session
from streams.drive import Partition
from streams.metrics import StreamMetrics
from streams.outputs import Emitted, Fetched, Output, Timed
from streams.processor import Processor
from streams.readback import timed_of
from streams.session_state import SessionState
from streams.surroundings import Surroundings
from tests.streams_rig import a_conversation
from tests.unit.streams.folding import a_configuration
from tests.unit.streams.recipes import load

WITHIN_S = 120.0
Step = Callable[[SessionState, Timed, Fetched], tuple[SessionState, tuple[Output, ...]]]


class EndedError(Exception):
    """The process would have ended."""


@dataclass
class PartitionRig:
    """A broker, and topics that nobody else knows."""

    access: KafkaAccess
    blobs: BlobStore
    topic: str
    publisher: Publisher
    schema_log: SchemaLog
    reader: Reader
    another_reader: Reader
    is_assigned: bool = True
    look_s: float = 60
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    ended: "asyncio.Future[str]" = field(default_factory=asyncio.Future)

    @property
    def log(self) -> str:
        return f"{self.topic}.log"

    @property
    def state(self) -> str:
        return f"{self.topic}.state"

    @property
    def resolver(self) -> Resolver:
        return Resolver(self.schema_log, self.blobs)

    def processor(self, step: Step = session.step) -> Processor:
        def stepped(
            state: SessionState, timed: Timed, fetched: Fetched
        ) -> tuple[SessionState, tuple[Output, ...]]:
            state, outputs = step(state, timed, fetched)
            told = [
                replace(each, topic=self.topic) if isinstance(each, Emitted) else each for each in outputs
            ]
            return state, tuple(told)

        return Processor(
            name="session",
            topic=self.log,
            state_topic=self.state,
            outputs=(self.topic,),
            new_state=lambda number, _: new_state(),
            step=stepped,
            needs=session.needs,
        )

    def _here(self, output: Output) -> Output:
        return replace(output, topic=self.topic) if isinstance(output, Emitted) else output

    def partition(self, processor: Processor | None = None) -> Partition:
        """Start the partition: once, since its metrics are the registry's."""
        partition = Partition(processor or self.processor(), 0, self.surroundings())
        partition.start()
        return partition

    def surroundings(self) -> Surroundings:
        return Surroundings(
            deployment=self.topic,
            access=self.access,
            blobs=self.blobs,
            resolver=self.resolver,
            reader=self.another_reader,
            reading=asyncio.Lock(),
            opening=asyncio.Semaphore(1),
            ticker=self.publisher,
            tick_s=60,
            look_s=self.look_s,
            metrics=StreamMetrics(self.registry),
            is_assigned=lambda _: self.is_assigned,
            end_process=self.end_process,
            limits=BusLimits(deadline_s=3.0),
        )

    def num_opened(self, reason: str) -> float:
        name = "reef_streams_opened_partitions_total"
        return self.registry.get_sample_value(name, {"reason": reason}) or 0.0

    def end_process(self, why: str) -> NoReturn:
        if not self.ended.done():
            self.ended.set_result(why)
        raise EndedError(why)

    async def write(self, *events: Event) -> None:
        for event in events:
            await self.publisher.publish(event, topic=self.log, partition=0)

    async def hand_over(self, partition: Partition) -> None:
        """Deliver the whole log, as Faust may, and wait until it is folded."""
        records = await self.records(self.log)
        await partition.offer(records)
        await self.until(lambda: partition.next_offset > records[-1].offset)

    async def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = monotonic() + WITHIN_S
        while not is_so():
            assert monotonic() < deadline_s, "waited in vain"
            assert not self.ended.done(), self.ended.result()
            await asyncio.sleep(0.05)

    async def records(self, topic: str, partition: int = 0) -> list[Record]:
        start = await self.reader.log_start(topic, partition)
        return [each async for each in self.reader.read_to_end(topic, partition, start)]

    async def told(self) -> list[Event]:
        return [await self.resolver.resolve(record) for record in await self.records(self.topic)]

    async def stored(self) -> dict[bytes, bytes]:
        """What a worker that opens the partition next would load."""
        records = await self.records(self.state)
        entries = without_tombstones({record.key or b"": record.value for record in records})
        return {key: value for key, value in entries.items() if not key.startswith(b"@")}

    async def refused(self) -> list[EventRejected]:
        """What was refused of this log; what others refused may refer to blobs of theirs, and is not read."""
        numbers = range(await self.publisher.num_partitions(REJECTED))
        records = [record for number in numbers for record in await self.records(REJECTED, number)]
        named = [record for record in records if self.log.encode() in (record.value or b"")]
        events = [await self.resolver.resolve(record) for record in named]
        ours = [each for each in events if isinstance(each, EventRejected)]
        return sorted(
            [each for each in ours if each.source_topic == self.log], key=lambda each: each.source_offset
        )

    async def is_as_folded(self, *, without: Collection[int] = ()) -> None:
        """Check that what was told and stored is what the log, without some records, says."""
        state, log = new_state(), {}
        said: list[Event] = []
        entries: dict[bytes, bytes] = {}
        for record in await self.records(self.log):
            if record.offset in without:
                continue
            timed = timed_of(record, await self.resolver.resolve(record))
            log[record.offset] = timed
            _, outputs = session.step(state, timed, log)
            said += [each.event for each in outputs if isinstance(each, Emitted)]
            entries = without_tombstones({**entries, **state.changes()})
        assert await self.told() == said
        assert await self.stored() == entries


@asynccontextmanager
async def a_partition_rig(bootstrap: str, folder: Path) -> AsyncIterator[PartitionRig]:
    access, blobs = KafkaAccess(bootstrap=bootstrap), open_blob_store(folder.as_uri())
    topic = f"partition-{uuid4().hex}"
    await ensure_topics(access)
    names = {topic: Cleanup.DELETE, f"{topic}.log": Cleanup.DELETE, f"{topic}.state": Cleanup.COMPACT}
    specs = [
        TopicSpec(name=name, events=(), key="any", cleanup=cleanup, retention_ms=-1)
        for name, cleanup in names.items()
    ]
    await ensure_topics(access, specs=specs, num_partitions=1)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        yield PartitionRig(
            access=access,
            blobs=blobs,
            topic=topic,
            publisher=await enter(Publisher(access, blobs=blobs)),
            schema_log=await enter(SchemaLog(access)),
            reader=await enter(Reader(access)),
            another_reader=await enter(Reader(access)),
        )


def new_state() -> SessionState:
    return SessionState(partition=0, num_partitions=1, load_recipe=load)


def a_log() -> list[Event]:
    """A configuration, then calls of their own conversations, each with its report: nine records."""
    pairs = [pair for name in ("a", "b", "c", "d") for pair in a_conversation(name, 1, time_ns() // 1_000)]
    return [a_configuration(), *[event for pair in pairs for event in pair]]


def without_tombstones(entries: dict[bytes, Any]) -> dict[bytes, bytes]:
    return {key: value for key, value in entries.items() if value is not None}
