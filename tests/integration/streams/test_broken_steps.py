"""A bug of ours that breaks a step half-way: nothing of it stays in the state, and the rest goes on."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, time_ns
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry

from schemas.blobs import BlobStore, open_blob_store
from schemas.bus import BusLimits, KafkaAccess, Publisher, Reader, Record, Resolver, SchemaLog
from schemas.events import Event, EventRejected
from schemas.topic_admin import ensure_topics
from schemas.topics import REJECTED, Cleanup, TopicSpec
from streams import session
from streams.drive import Partition, Processor, Surroundings
from streams.metrics import StreamMetrics
from streams.outputs import Emitted, Fetched, Output, Timed
from streams.readback import timed_of
from streams.session_state import SessionState
from tests.streams_rig import a_conversation
from tests.unit.streams.folding import a_configuration
from tests.unit.streams.recipes import load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

WITHIN_S = 120.0
THIRD_CALL, THIRD_REPORT = 5, 6
"""Their offsets, behind the configuration and two calls with their reports."""


@dataclass
class BreakingFold:
    """The session fold, whose step breaks at some offsets when the state has changed already."""

    topic: str
    breaks_at: Collection[int]
    num_breaks_max: int
    num_broken: int = 0

    def step(
        self, state: SessionState, timed: Timed, fetched: Fetched
    ) -> tuple[SessionState, tuple[Output, ...]]:
        state, outputs = session.step(state, timed, fetched)
        if timed.offset in self.breaks_at and self.num_broken < self.num_breaks_max:
            self.num_broken += 1
            raise ZeroDivisionError("broken on purpose")
        told = [replace(each, topic=self.topic) if isinstance(each, Emitted) else each for each in outputs]
        return state, tuple(told)

    def processor(self) -> Processor:
        return Processor(
            name="session",
            topic=f"{self.topic}.log",
            state_topic=f"{self.topic}.state",
            outputs=(self.topic,),
            new_state=lambda number, _: new_state(),
            step=self.step,
            needs=session.needs,
        )


def new_state() -> SessionState:
    return SessionState(partition=0, num_partitions=1, load_recipe=load)


@dataclass
class Bench:
    """A broker, and topics that nobody else knows."""

    access: KafkaAccess
    blobs: BlobStore
    topic: str
    publisher: Publisher
    schema_log: SchemaLog
    reader: Reader
    another_reader: Reader

    async def write(self, events: Collection[Event]) -> None:
        for event in events:
            await self.publisher.publish(event, topic=f"{self.topic}.log", partition=0)

    async def records(self, topic: str, partition: int = 0) -> list[Record]:
        start = await self.reader.log_start(topic, partition)
        return [each async for each in self.reader.read_to_end(topic, partition, start)]

    @property
    def resolver(self) -> Resolver:
        return Resolver(self.schema_log, self.blobs)

    async def decoded(self, records: Collection[Record]) -> list[Event]:
        return [await self.resolver.resolve(record) for record in records]

    async def refused(self) -> list[EventRejected]:
        """What was refused of this log."""
        numbers = range(await self.publisher.num_partitions(REJECTED))
        records = [record for number in numbers for record in await self.records(REJECTED, number)]
        events = await self.decoded(records)
        ours = [
            each for each in events if isinstance(each, EventRejected) and self.topic in each.source_topic
        ]
        return sorted(ours, key=lambda each: each.source_offset)

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
            metrics=StreamMetrics(CollectorRegistry()),
            is_assigned=lambda _: True,
            end_process=_end,
            limits=BusLimits(deadline_s=3.0),
        )


class EndedError(Exception):
    """The process would have ended."""


def _end(why: str) -> NoReturn:
    raise EndedError(why)


@asynccontextmanager
async def a_bench(bootstrap: str, folder: Path) -> AsyncIterator[Bench]:
    access, blobs = KafkaAccess(bootstrap=bootstrap), open_blob_store(folder.as_uri())
    topic = f"broken-{uuid4().hex}"
    await ensure_topics(access)
    specs = [a_spec(topic), a_spec(f"{topic}.log"), a_spec(f"{topic}.state", Cleanup.COMPACT)]
    await ensure_topics(access, specs=specs, num_partitions=1)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        yield Bench(
            access=access,
            blobs=blobs,
            topic=topic,
            publisher=await enter(Publisher(access, blobs=blobs)),
            schema_log=await enter(SchemaLog(access)),
            reader=await enter(Reader(access)),
            another_reader=await enter(Reader(access)),
        )


def a_spec(name: str, cleanup: Cleanup = Cleanup.DELETE) -> TopicSpec:
    return TopicSpec(name=name, events=(), key="any", cleanup=cleanup, retention_ms=-1)


def the_log() -> list[Event]:
    pairs = [pair for name in ("a", "b", "c", "d") for pair in a_conversation(name, 1, time_ns() // 1_000)]
    return [a_configuration(), *[event for pair in pairs for event in pair]]


async def driven(bench: Bench, fold: BreakingFold) -> SessionState:
    """Let a partition catch up with half of the log, then hand it the rest."""
    events = the_log()
    await bench.write(events[: THIRD_CALL - 1])
    partition = Partition(fold.processor(), 0, bench.surroundings())
    partition.start()
    deadline_s = monotonic() + WITHIN_S
    while partition.state is None:
        assert monotonic() < deadline_s, "the partition does not open"
        await asyncio.sleep(0.05)
    await bench.write(events[THIRD_CALL - 1 :])
    await partition.offer(await bench.records(f"{bench.topic}.log"))
    while partition.next_offset < len(events):
        assert monotonic() < deadline_s, f"the partition stands at {partition.next_offset}"
        await asyncio.sleep(0.05)
    await partition.close()
    assert isinstance(partition.state, SessionState)
    return partition.state


async def folded_by_hand(bench: Bench, leave_out: Collection[int]) -> tuple[list[Event], dict[bytes, Any]]:
    """What the log without some records says, and the state behind it."""
    state, log, said = new_state(), {}, []
    entries: dict[bytes, bytes] = {}
    for record in await bench.records(f"{bench.topic}.log"):
        if record.offset in leave_out:
            continue
        timed = timed_of(record, await bench.resolver.resolve(record))
        log[record.offset] = timed
        _, outputs = session.step(state, timed, log)
        said += [each.event for each in outputs if isinstance(each, Emitted)]
        entries = without_tombstones({**entries, **state.changes()})
    return said, entries


def without_tombstones(entries: dict[bytes, Any]) -> dict[bytes, bytes]:
    return {key: value for key, value in entries.items() if value is not None}


async def stored(bench: Bench) -> dict[bytes, bytes]:
    """What a worker that opens the partition next would load."""
    records = await bench.records(f"{bench.topic}.state")
    entries = without_tombstones({record.key or b"": record.value for record in records})
    return {key: value for key, value in entries.items() if not key.startswith(b"@")}


async def test_a_step_that_breaks_half_way_leaves_nothing_in_the_state_and_its_event_is_refused(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    async with a_bench(kafka_bootstrap, tmp_path) as bench:
        fold = BreakingFold(bench.topic, {THIRD_CALL, THIRD_REPORT}, num_breaks_max=100)
        state = await driven(bench, fold)
        said, entries = await folded_by_hand(bench, fold.breaks_at)
        assert await bench.decoded(await bench.records(bench.topic)) == said
        assert await stored(bench) == entries
        assert fold.num_broken == 4, "each is tried twice, the second time on the committed state"
        assert state.num_pending() == 0
        refused = await bench.refused()
        log = await bench.records(f"{bench.topic}.log")
        assert [(each.source_offset, each.reason) for each in refused] == [
            (THIRD_CALL, "bug"),
            (THIRD_REPORT, "bug"),
        ]
        assert [(each.key, each.value) for each in refused] == [
            (log[at].key, log[at].value) for at in (THIRD_CALL, THIRD_REPORT)
        ]


async def test_a_step_that_breaks_once_loses_nothing(kafka_bootstrap: str, tmp_path: Path) -> None:
    """What the state in memory was spoilt by is not what the log says: the committed one takes the event."""
    async with a_bench(kafka_bootstrap, tmp_path) as bench:
        fold = BreakingFold(bench.topic, {THIRD_CALL}, num_breaks_max=1)
        await driven(bench, fold)
        said, entries = await folded_by_hand(bench, ())
        assert await bench.decoded(await bench.records(bench.topic)) == said
        assert await stored(bench) == entries
        assert (fold.num_broken, await bench.refused()) == (1, [])


async def test_a_missing_topic_ends_the_process_and_nothing_is_committed(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    async with a_bench(kafka_bootstrap, tmp_path) as bench:
        fold = BreakingFold(bench.topic, (), num_breaks_max=0)
        await bench.write(the_log())
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def end(why: str) -> NoReturn:
            ended.set_result(why)
            raise EndedError(why)

        nowhere = replace(fold.processor(), outputs=(f"{bench.topic}.nowhere",))
        partition = Partition(nowhere, 0, replace(bench.surroundings(), end_process=end))
        partition.start()
        assert f"{bench.topic}.nowhere" in await asyncio.wait_for(ended, WITHIN_S)
        assert await bench.records(bench.topic) == await bench.records(f"{bench.topic}.state") == []
