"""Shell: the one runner of all folds: outputs, state and offset become visible together (STREAMS 1-9).

A partition that is ours is opened, caught up, and then lives batch after batch. Whatever breaks, the log
decides what was done: the partition is opened again, or the process ends and its supervisor starts it anew.

Next: streams/session.py
"""

import asyncio
from collections import ChainMap, Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from struct import Struct
from time import monotonic, time_ns

import structlog

from schemas.bus import Reader, Record, TransactionalPublisher, rejection
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.events import ClockTicked, Event
from schemas.records import Outgoing, Place
from schemas.topics import REJECTED
from streams.outputs import Emitted, Fetched, FetchNeededError, FoldState, Output, Refused, Timed
from streams.processor import Processor
from streams.readback import ReadBack, timed_of
from streams.surroundings import Surroundings

BATCH_RECORDS_MAX = 1_000
"""Folded in one transaction."""
BATCH_OUTPUTS_MAX = 5_000
"""Beyond it the rest of a batch goes into the next transaction, which has ten seconds."""
GATHER_S = 0.03
"""How long records wait for company: Faust delivers a few at a time, and a transaction has its price."""
INBOX_RECORDS_MAX = 5_000
"""Beyond it Faust waits for the partition."""
PATIENCE_S = 30.0
"""How long a partition tries without progress before the process ends."""
RETRY_S = 0.5
STEP_ATTEMPTS_MAX = 2
"""A step that breaks is tried again on the committed state; what breaks it twice is refused."""
CLOSE_S = 15.0
HOPELESS = frozenset({"unknown_event_type", "unknown_topic", "log_truncated", "beyond_end", "kafka_refused"})
"""What trying again cannot mend: a person must act."""

_LAST = Struct("<q")
_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(slots=True)
class _Batch:
    """What came of some records."""

    outputs: list[Output] = field(default_factory=list)
    events: list[tuple[Event, str | None, int | None]] = field(default_factory=list)
    """To be written: event, topic and partition."""
    last_offset: int = -1
    num_records: int = 0


class Partition:
    """One input partition of one processor, with its producer and its state."""

    def __init__(self, processor: Processor, number: int, around: Surroundings) -> None:
        """Know the place; `start` opens it."""
        self.processor = processor
        self.place = Place(processor.topic, number)
        self.next_offset = 0
        """The first offset that is not in the state."""
        self.progressed_s = monotonic()
        """When the last batch ended, or an opening moved on."""
        self.state: FoldState | None = None
        self._around = around
        self._log = _log.bind(topic=processor.topic, partition=number)
        self._inbox: deque[Record] = deque()
        self._stir = asyncio.Event()
        self._room = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()
        self._is_closing = False
        self._ticked_s = 0.0
        self._looked_s = monotonic()
        self._seen_end = 0
        """Where the log ended at the last look."""
        self._empty_until = 0
        """Below it a look found nothing but markers of transactions."""
        self._failing_since_s: float | None = None
        self._broken_steps: Counter[int] = Counter()
        """How often a step broke, by offset: of records that are not committed yet."""
        self._task: asyncio.Task[None] | None = None

    # ---- from outside --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the partition whether or not an event comes: a quiet one has deadlines too."""
        self._task = asyncio.ensure_future(self._live())
        self._task.add_done_callback(self._check_end)

    def _check_end(self, task: "asyncio.Task[None]") -> None:
        """A bug of ours must not leave a partition without anybody."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("partition_failed", exc_info=error)
            self._around.end_process(f"{self.place.topic}/{self.place.partition}: {error!r}")

    async def offer(self, records: Sequence[Record]) -> None:
        """Hand over what Faust delivered; waits while the partition has enough."""
        while len(self._inbox) >= INBOX_RECORDS_MAX and not self._is_closing:
            self._room.clear()
            await self._room.wait()
        self._inbox.extend(records)
        self._stir.set()

    def pause(self) -> None:
        """Begin no batch until it is clear whose the partition is."""
        self._running.clear()

    def resume(self) -> None:
        """Go on: the partition is still ours."""
        self._running.set()

    async def close(self) -> None:
        """End after the batch at hand."""
        self._is_closing = True
        for event in (self._stir, self._running, self._room):
            event.set()
        if self._task is not None:
            _, unfinished = await asyncio.wait([self._task], timeout=CLOSE_S)
            for task in unfinished:
                task.cancel()

    # ---- living --------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Open and work, again and again until closed; what cannot be mended ends the process."""
        while not self._is_closing:
            try:
                async with AsyncExitStack() as opened:
                    await self._work(opened)
            except (ConflictError, UnavailableError, RejectedError) as error:
                await self._weigh(error)

    async def _weigh(self, error: ReefError) -> None:
        """Decide after a failure: the partition went to another, or is opened again, or nobody can go on."""
        self._log.warning("partition_broke", reason=error.reason, detail=str(error))
        self._around.metrics.opened(error.reason)
        if not self._around.is_assigned(self.place):
            self._is_closing = True
            return
        failing_since_s = self._failing_since_s or monotonic()
        self._failing_since_s = failing_since_s
        is_hopeless = error.reason in HOPELESS or isinstance(error, RejectedError)
        if is_hopeless or monotonic() - failing_since_s > PATIENCE_S:
            self._around.end_process(f"{self.place.topic}/{self.place.partition}: {error}")
        await asyncio.sleep(RETRY_S)

    async def _work(self, opened: AsyncExitStack) -> None:
        """Open the partition and take batch after batch.

        1. Open the producer: it fences the one before, whose open transaction ends.
        2. Look up every topic that is written to: a missing one must stop us before anything is done.
        3. Load the state, as committed; then fold the log from the stored offset to its end.
        4. Take what Faust delivers above that, and let time be written when a deadline has passed.
        """
        around = self._around
        async with around.opening:
            publisher = await opened.enter_async_context(
                TransactionalPublisher(
                    around.access, self._transactional_id, blobs=around.blobs, limits=around.limits
                )
            )
            for topic in (*self.processor.outputs, self.processor.state_topic, REJECTED):
                await publisher.num_partitions(topic)
            num_partitions = await publisher.num_partitions(self.place.topic)
            async with Reader(around.access, limits=around.limits) as reader:
                state = await self._loaded(reader, num_partitions)
                readback = ReadBack(self.place, around.reader, around.resolver)
                async for records in self._behind(reader):
                    await self._take_all(publisher, state, readback, records)
        self.state = state
        self._log.info("partition_opened", next_offset=self.next_offset)
        around.metrics.opened("assigned")
        while not self._is_closing:
            records = await self._next_records()
            await self._take_all(publisher, state, readback, records)

    @property
    def _transactional_id(self) -> str:
        parts = (self._around.deployment, self.processor.name, *self.place)
        return "-".join(map(str, parts))

    async def _loaded(self, reader: Reader, num_partitions: int) -> FoldState:
        """Read the state partition to its end."""
        state: FoldState = self.processor.new_state(self.place.partition, num_partitions)
        entries: dict[bytes, bytes | None] = {}
        source = Place(self.processor.state_topic, self.place.partition)
        first = await reader.log_start(*source)
        async for record in reader.read_to_end(*source, first):
            self._progress()
            entries[record.key or b""] = record.value
        self.next_offset = await reader.log_start(*self.place)
        for key, value in entries.items():
            if value is None or (key.startswith(b"@") and key != self._last_key):
                continue
            if key == self._last_key:
                self.next_offset = _LAST.unpack(value)[0] + 1
            else:
                state.load(key, value)
        return state

    @property
    def _last_key(self) -> bytes:
        return f"@{self.place.topic}".encode()

    async def _behind(self, reader: Reader) -> AsyncIterator[list[Record]]:
        """Read what the log has beyond the stored offset, in batches."""
        records: list[Record] = []
        await reader.follow({self.place: self.next_offset})  # refuses an offset that the log does not hold
        async for record in reader.read_to_end(*self.place, self.next_offset):
            records.append(record)
            if len(records) >= BATCH_RECORDS_MAX:
                yield records
                records = []
        if records:
            yield records

    # ---- batches -------------------------------------------------------------------------------------------

    async def _next_records(self) -> list[Record]:
        """Wait for records; meanwhile write a tick when one is due, and look for what was not delivered."""
        while not self._inbox and not self._is_closing:
            self._stir.clear()
            try:
                async with asyncio.timeout(min(self._around.tick_s, self._around.look_s)):
                    await self._stir.wait()
            except TimeoutError:
                await self._tick_if_due()
                self._inbox.extend(await self._passed_over())
        if len(self._inbox) < BATCH_RECORDS_MAX and not self._is_closing:
            await asyncio.sleep(GATHER_S)
        await self._running.wait()
        taken = [self._inbox.popleft() for _ in range(min(len(self._inbox), BATCH_RECORDS_MAX))]
        self._room.set()
        return await self._without_gaps(taken)

    async def _tick_if_due(self) -> None:
        if self.state is None or not self.processor.is_ticked:
            return
        deadline_us = self.state.earliest_deadline_us()
        if deadline_us is None or deadline_us > time_ns() // 1_000:
            return
        if monotonic() - self._ticked_s >= self._around.tick_s:
            self._ticked_s = monotonic()
            await self._around.ticker.publish(
                ClockTicked(), topic=self.place.topic, partition=self.place.partition
            )

    async def _passed_over(self) -> Sequence[Record]:
        """Read what the log held a look ago and Faust has not delivered since; none while Kafka is away."""
        if monotonic() - self._looked_s < self._around.look_s:
            return ()
        first, last = self.next_offset, min(self._seen_end, self.next_offset + BATCH_RECORDS_MAX) - 1
        try:
            async with self._around.reading:
                reader = self._around.reader
                self._seen_end = await reader.end_offset(*self.place)
                if last < max(first, self._empty_until):
                    return ()
                records = [record async for record in reader.read_range(*self.place, first, last)]
        except UnavailableError as error:
            self._log.warning("look_failed", reason=error.reason)
            return ()
        finally:
            self._looked_s = monotonic()
        self._empty_until = last + 1
        self._around.metrics.undelivered(len(records))
        return records

    async def _without_gaps(self, taken: Iterable[Record]) -> list[Record]:
        """Give every record up to the last delivered one: where offsets are missing, all are read again."""
        fresh = {record.offset: record for record in taken if record.offset >= self.next_offset}
        if not fresh:
            return []
        last = max(fresh)
        if last - self.next_offset + 1 == len(fresh):
            return [fresh[offset] for offset in sorted(fresh)]
        async with self._around.reading:
            read_range = self._around.reader.read_range(*self.place, self.next_offset, last)
            records = [record async for record in read_range]
        undelivered = len(records) - len(fresh)
        if undelivered > 0:
            self._around.metrics.undelivered(undelivered)
        return records

    async def _take_all(
        self,
        publisher: TransactionalPublisher,
        state: FoldState,
        readback: ReadBack,
        records: Sequence[Record],
    ) -> None:
        """Take records in as many transactions as their outputs need."""
        rest = list(records)
        while rest:
            began_s = monotonic()
            batch = await self._folded(state, readback, rest)
            folded_s = monotonic()
            await self._commit(publisher, state, batch)
            rest = rest[batch.num_records :]
            self._tell(batch, folded_s - began_s, monotonic() - folded_s)

    def _tell(self, batch: _Batch, fold_s: float, commit_s: float) -> None:
        self._around.metrics.took(self.processor.name, batch.num_records, fold_s + commit_s)
        for output in batch.outputs:
            self._around.metrics.said(output)
        self._log.debug(
            "batch_folded",
            num_records=batch.num_records,
            num_outputs=len(batch.events),
            next_offset=self.next_offset,
            fold_ms=round(fold_s * 1_000, 1),
            commit_ms=round(commit_s * 1_000, 1),
        )

    async def _folded(self, state: FoldState, readback: ReadBack, records: Sequence[Record]) -> _Batch:
        """Read records as events and fold them; what cannot be read or taken is refused with its bytes."""
        batch = _Batch()
        for record in records:
            batch.num_records += 1
            batch.last_offset = record.offset
            try:
                timed = timed_of(record, await self._around.resolver.resolve(record))
            except RejectedError as error:
                batch.outputs.append(Refused(offset=record.offset, error=error))
                batch.events.append((rejection(record, error, "codec"), None, None))
                continue
            readback.remember(timed, len(record.value or b""))
            outputs = await self._stepped(state, readback, timed)
            batch.outputs += outputs
            for output in outputs:
                await self._add(batch, readback, record, output)
            if len(batch.events) >= BATCH_OUTPUTS_MAX or record.offset in self._broken_steps:
                break  # what broke is committed before the next can break
        return batch

    async def _stepped(self, state: FoldState, readback: ReadBack, timed: Timed) -> tuple[Output, ...]:
        """Ask, fetch, step. A bug of ours refuses the event, and is told to people.

        A step that breaks may leave half of itself in the state: the partition is opened again from what was
        committed, and the event tried once more. Raises UnavailableError for that.
        """
        if self._broken_steps[timed.offset] >= STEP_ATTEMPTS_MAX:
            return (Refused(offset=timed.offset, error=_bug_at(timed)),)
        asked_for: dict[int, Timed | None] = {}
        fetched: Fetched = readback.at_hand
        while True:
            try:
                _, outputs = self.processor.step(state, timed, fetched)
            except FetchNeededError as error:
                async with self._around.reading:
                    asked_for |= await readback.fetch(error.offsets)
                fetched = ChainMap(asked_for, readback.at_hand)
            except Exception as error:
                self._broken_steps[timed.offset] += 1
                self._log.exception("fold_failed", offset=timed.offset)
                bug = _bug_at(timed)
                raise UnavailableError(str(bug), reason=bug.reason) from error
            else:
                return outputs

    async def _add(self, batch: _Batch, readback: ReadBack, record: Record, output: Output) -> None:
        if isinstance(output, Emitted):
            batch.events.append((output.event, output.topic, output.partition))
        elif isinstance(output, Refused):
            refused: Record | None = record
            if output.offset != record.offset:
                async with self._around.reading:
                    refused = await readback.fetch_record(output.offset)
            if refused is None:
                refused = _without_bytes(record, output.offset)
            batch.events.append((rejection(refused, output.error, self.processor.name), None, None))

    async def _commit(self, publisher: TransactionalPublisher, state: FoldState, batch: _Batch) -> None:
        """Make outputs, state and offset visible together.

        1. Encode the outputs and write their blobs, before the ten seconds of the transaction run.
        2. Begin; from here on everything becomes visible, or nothing.
        3. Send the outputs, in order.
        4. Send the changed entries and the offset, into the state partition of our number.
        5. Commit, with the group's offset for whoever looks at lags.
        Only then is the offset ours: after an error the state in memory is thrown away and loaded again.
        """
        outgoing = [
            await publisher.prepare(event, topic=topic, partition=partition)
            for event, topic, partition in batch.events
        ]
        entries: Mapping[bytes, bytes | None] = {
            **state.changes(),
            self._last_key: _LAST.pack(batch.last_offset),
        }
        async with publisher.transaction():
            for record in outgoing:
                await publisher.send_record(record)
            for key, value in entries.items():
                await publisher.send_record(
                    Outgoing(
                        topic=self.processor.state_topic,
                        key=key,
                        value=value,
                        partition=self.place.partition,
                    )
                )
            await publisher.send_offsets({self.place: batch.last_offset + 1}, group=self._around.group)
        self.next_offset = batch.last_offset + 1
        for offset in [each for each in self._broken_steps if each < self.next_offset]:
            del self._broken_steps[offset]
        self._progress()

    def _progress(self) -> None:
        self.progressed_s = monotonic()
        self._failing_since_s = None


def _bug_at(timed: Timed) -> RejectedError:
    kind = type(timed.event).__name__
    return RejectedError(
        f"expected the fold to take {kind} at offset {timed.offset}, but its step broke: see fold_failed in "
        "the log, and report it with that",
        reason="bug",
    )


def _without_bytes(record: Record, offset: int) -> Record:
    """Stand for a record that the log no longer holds."""
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=offset,
        key=None,
        value=None,
        headers=(),
        timestamp_us=record.timestamp_us,
    )
