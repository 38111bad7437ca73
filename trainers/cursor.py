"""Shell: the log as rank 0 sees it: a thread reads batches ahead and writes results, while the ranks compute.

Nothing is committed anywhere: the offset lives in the trainer's pointer, beside the tensors that it led to.
While Kafka is away the thread tries again; a log that no longer holds the offset stops the trainer loudly.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import uniform
from threading import Thread
from typing import Any, Self, TypeVar

import structlog

from schemas.blobs import BlobStore
from schemas.bus import KafkaAccess, Place, Publisher, Reader, Record, Resolver, SchemaLog, rejection
from schemas.errors import RejectedError, UnavailableError
from schemas.events import BatchSealed, Event, TrainingSample
from schemas.ids import BatchId, ScenarioName
from schemas.partitions import partition_of
from schemas.topics import TRAINING
from trainers.batch import Batch, Samples, gather
from trainers.loop import Announcement

T = TypeVar("T")

BATCHES_AHEAD_MAX = 2
"""Read and not yet trained; a scenario has one in flight, so more would wait for nothing."""
RETRY_S_MAX = 30.0
CALL_S_MAX = 60.0
STAGE = "trainer"
TOO_OLD = "unknown_event_type"
"""The log holds what only a newer version of this program can read."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAccess:
    """Where the log and its large fields are."""

    kafka: KafkaAccess
    """The cluster."""
    blobs: BlobStore
    """Fields that are too large for it."""


class Cursor:
    """Reads one scenario's batches from an offset on; used inside `with`."""

    def __init__(self, access: LogAccess, scenario: ScenarioName, *, topic: str = TRAINING) -> None:
        """Read `topic`: the live one, or a replay's."""
        self._access, self._scenario, self._topic = access, scenario, topic
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="log", daemon=True)
        self._batches: asyncio.Queue[Batch] = asyncio.Queue(maxsize=BATCHES_AHEAD_MAX)
        self._read_to = 0
        self._reading: Future[None] | None = None
        self._announcing: Future[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(CALL_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S_MAX)
        self._loop.close()

    def bounds(self) -> tuple[int, int]:
        """Where the scenario's partition begins, and the offset behind its newest record."""
        return self._call(self._bounds())

    def begin(self, offset: int) -> None:
        """Read from here on."""
        self._read_to = offset
        self._reading = asyncio.run_coroutine_threadsafe(self._read(offset), self._loop)

    def next_batch(self, wait_s: float) -> Batch | None:
        """Give the next batch, or None after the wait. Raises ConflictError when the log was truncated."""
        assert self._reading is not None, "begin first"
        if self._reading.done():
            self._reading.result()
        return self._call(self._taken(wait_s))

    def is_read_to(self, offset: int) -> bool:
        """Whether everything below an offset was read, and every batch of it handed out."""
        return self._read_to >= offset and self._batches.empty()

    def announce(self, event: Announcement) -> None:
        """Begin to write an event; it is tried until it stands."""
        self._announcing = asyncio.run_coroutine_threadsafe(self._publish(event), self._loop)

    def is_announced(self, wait_s: float) -> bool:
        """Whether that event stands; waits for it a while."""
        assert self._announcing is not None, "announce first"
        try:
            self._announcing.result(wait_s)
        except TimeoutError:
            return False
        return True

    def find(self, batch_id: BatchId, offset: int) -> Batch | None:
        """Look for a batch from an offset to the end; None when it is not there."""
        return self._call(self._find(batch_id, offset))

    def _call(self, act: Coroutine[Any, Any, T]) -> T:
        asked = asyncio.run_coroutine_threadsafe(act, self._loop)
        try:
            return asked.result(CALL_S_MAX)
        except TimeoutError as error:
            asked.cancel()
            raise UnavailableError(
                f"expected the log to answer within {CALL_S_MAX:g} s, got nothing: check that Kafka runs",
                reason="deadline",
            ) from error

    async def _bounds(self) -> tuple[int, int]:
        place = await self._place()
        async with Reader(self._access.kafka) as reader:
            return await reader.log_start(*place), await reader.end_offset(*place)

    async def _place(self) -> Place:
        async with Publisher(self._access.kafka, blobs=self._access.blobs) as publisher:
            num_partitions = await publisher.num_partitions(self._topic)
        return Place(self._topic, partition_of(self._scenario.encode(), num_partitions))

    async def _taken(self, wait_s: float) -> Batch | None:
        try:
            async with asyncio.timeout(wait_s):
                return await self._batches.get()
        except TimeoutError:
            return None

    async def _read(self, offset: int) -> None:
        """Read for ever; what a lost connection left half gathered is read again."""
        behind = offset

        async def read_on() -> None:
            nonlocal behind
            async with AsyncExitStack() as stack:
                reader = await stack.enter_async_context(Reader(self._access.kafka))
                schemas = await stack.enter_async_context(SchemaLog(self._access.kafka))
                resolver = Resolver(schemas, self._access.blobs)
                place = await self._place()
                await reader.follow({place: behind})
                samples: Samples = ()
                async for record in reader:
                    samples, complete = await self._gathered(resolver, samples, record)
                    for batch in complete:
                        await self._batches.put(batch)
                        behind = batch.next_offset
                    self._read_to = record.offset + 1

        await _until_done("log_awaited", read_on)

    async def _gathered(
        self, resolver: Resolver, samples: Samples, record: Record
    ) -> tuple[Samples, tuple[Batch, ...]]:
        try:
            event = await resolver.resolve(record)
        except RejectedError as error:
            if self._topic != TRAINING:
                raise  # a replay writes nothing live
            await self._publish(rejection(record, error, STAGE))
            return samples, ()
        if not isinstance(event, TrainingSample | BatchSealed) or event.scenario != self._scenario:
            return samples, ()
        return gather(samples, event, record.offset + 1)

    async def _publish(self, event: Event) -> None:
        async def write() -> None:
            async with Publisher(self._access.kafka, blobs=self._access.blobs) as publisher:
                await publisher.publish(event)

        await _until_done("announcement_awaited", write)

    async def _find(self, batch_id: BatchId, offset: int) -> Batch | None:
        async with Reader(self._access.kafka) as reader, SchemaLog(self._access.kafka) as schemas:
            resolver = Resolver(schemas, self._access.blobs)
            samples: Samples = ()
            async for record in reader.read_to_end(*await self._place(), offset):
                samples, complete = await self._gathered(resolver, samples, record)
                for batch in complete:
                    if batch.sealed.batch_id == batch_id:
                        return batch
        return None


async def _until_done(what: str, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Try until it is done; only a dependency that is away is waited for."""
    pause_s = 1.0
    while True:
        try:
            return await act()
        except UnavailableError as error:
            if error.reason == TOO_OLD:
                raise
            _log.warning(what, detail=str(error))
        await asyncio.sleep(uniform(pause_s / 2, pause_s))
        pause_s = min(2 * pause_s, RETRY_S_MAX)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
