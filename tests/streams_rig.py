"""Stream workers as real processes on a real broker, and a check of all they wrote against the pure folds.

The log is the judge: every partition is folded again here, event by event, and what the workers wrote must be
exactly that: outputs, refusals and state.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time_ns
from typing import Any

from deploy.ports import free_port
from schemas.blobs import BlobStore, open_blob_store
from schemas.bus import KafkaAccess, Publisher, Reader, Record, Resolver, SchemaLog, rejection
from schemas.codec import encode_claim_checked
from schemas.errors import RejectedError, UnavailableError
from schemas.events import (
    BatchSealed,
    ClockTicked,
    Event,
    FeedbackReported,
    InferenceCompleted,
    Operation,
    ScenarioConfigured,
)
from schemas.ids import ReleaseId, Session, Sha256, route_of_session
from schemas.topic_admin import ensure_topics
from schemas.topics import COMMANDS, EXPERIENCE, INTERACTIONS, OUTCOMES, REJECTED, TRAINING
from streams.outputs import Emitted, Refused, Timed
from streams.processor import Processor
from streams.readback import timed_of
from streams.topology import processors
from tests.builders import a_release_published, a_training_failed
from tests.unit.streams.folding import SCENARIO, a_call, a_configuration, a_report, receipt_at

ROOT = Path(__file__).parents[1]
RECIPE = "tests.unit.streams.recipes:ScoreRecipe"
SETTLED_WITHIN_S = 150.0
READ_TRIES_MAX = 6
"""Each waits ten seconds."""

Written = Counter[tuple[str, bytes]]
"""Records by topic and value."""


@dataclass
class Rig:
    """A broker with all topics, a configuration, and the workers started with it."""

    access: KafkaAccess
    blobs: BlobStore
    folder: Path
    num_partitions: int
    deployment: str
    config: Path
    publisher: Publisher
    resolver: Resolver
    reader: Reader
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    by_hand: Written = field(default_factory=Counter)
    """What a test wrote itself into a topic of outputs."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def start_worker(self, deployment: str | None = None) -> "subprocess.Popen[bytes]":
        """Start one worker more; its log is in the folder."""
        words = ["streams", "-c", str(self.config), "--worker", str(len(self.workers))]
        words += ["--observability.metrics-port", str(free_port())]
        words += ["--reef.deployment", deployment or self.deployment]
        with (self.folder / "workers.log").open("ab") as log:
            worker = subprocess.Popen(
                (sys.executable, "-m", "deploy.cli", *words),
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.workers.append(worker)
        return worker

    def log_text(self) -> str:
        return (self.folder / "workers.log").read_text()

    async def configure(self, **changes: Any) -> ScenarioConfigured:
        """Say what the scenario is, and that release 0 serves, where users say it."""
        event = a_configuration(**({"recipe": RECIPE} | changes))
        await self.publisher.publish(event, topic=COMMANDS)
        await self.publisher.publish(a_release(0, Operation.CREATION))
        return event

    async def records(self, topic: str, partition: int) -> list[Record]:
        """Read everything committed of a partition; a broker that is late is asked again."""
        async with self.reading:
            for _ in range(READ_TRIES_MAX):
                with suppress(UnavailableError):
                    start = await self.reader.log_start(topic, partition)
                    return [record async for record in self.reader.read_to_end(topic, partition, start)]
        raise AssertionError(f"expected {topic} to be readable, got no answer {READ_TRIES_MAX} times")

    async def all_records(self, topic: str) -> list[Record]:
        return [each for number in range(self.num_partitions) for each in await self.records(topic, number)]

    async def events(self, topic: str, kind: type[Any]) -> list[Any]:
        decoded = [await self.resolver.resolve(record) for record in await self.all_records(topic)]
        return [event for event in decoded if isinstance(event, kind)]

    async def until(self, topic: str, kind: type[Any], count: int, within_s: float = 60.0) -> list[Any]:
        """Wait until so many events of a kind are committed."""
        deadline_s = monotonic() + within_s
        while True:
            found = await self.events(topic, kind)
            if len(found) >= count:
                return found
            assert monotonic() < deadline_s, (
                f"{len(found)} of {count} {kind.__name__}: {self.log_text()[-3000:]}"
            )
            await asyncio.sleep(0.3)

    async def until_said(self, what: str, count: int, within_s: float = 60.0) -> None:
        """Wait until the workers' log has so many lines of a kind."""
        deadline_s = monotonic() + within_s
        while self.log_text().count(what) < count:
            assert monotonic() < deadline_s, f"fewer than {count} {what}: {self.log_text()[-3000:]}"
            await asyncio.sleep(0.3)

    async def settled(self, within_s: float = SETTLED_WITHIN_S) -> None:
        """Wait until what the workers wrote is exactly what the folds say of the log."""
        deadline_s = monotonic() + within_s
        while True:
            difference = await self.difference()
            if difference is None:
                return
            assert monotonic() < deadline_s, f"{difference}\n{self.log_text()[-3000:]}"
            await asyncio.sleep(1.0)

    async def difference(self) -> str | None:
        """Fold every log again and compare; None when nothing is missing and nothing too much."""
        expected: Written = Counter()
        for processor in processors():
            for number in range(self.num_partitions):
                said, entries = await self.folded(processor, number)
                expected += said
                stored = await self.entries(processor, number)
                if stored != entries:
                    return f"state of {processor.topic}/{number} differs: {_differing(stored, entries)}"
        written: Written = Counter()
        for topic in (EXPERIENCE, OUTCOMES, TRAINING, REJECTED):
            written += Counter([(topic, record.value or b"") for record in await self.all_records(topic)])
        written -= self.by_hand
        del written[self.as_written(ClockTicked(), EXPERIENCE)]  # the runners' own: no fold says it
        expected = Counter({key: count for key, count in expected.items() if key[0] != INTERACTIONS})
        lost, doubled = expected - written, written - expected
        if lost or doubled:
            return f"{lost.total()} lost {_topics(lost)}, {doubled.total()} too many {_topics(doubled)}"
        return None

    async def folded(self, processor: Processor, number: int) -> tuple[Written, dict[bytes, bytes]]:
        """Fold a partition from the start, without Kafka's help: what must have been written."""
        state = processor.new_state(number, self.num_partitions)
        said: Written = Counter()
        log: dict[int, Timed] = {}
        raw: dict[int, Record] = {}
        entries: dict[bytes, bytes] = {}
        for record in await self.records(processor.topic, number):
            raw[record.offset] = record
            try:
                timed = timed_of(record, await self.resolver.resolve(record))
            except RejectedError as error:
                said[self.as_written(rejection(record, error, "codec"), REJECTED)] += 1
                continue
            log[record.offset] = timed
            _, outputs = processor.step(state, timed, log)
            for output in outputs:
                if isinstance(output, Emitted):
                    said[self.as_written(output.event, output.topic)] += 1
                elif isinstance(output, Refused):
                    refused = rejection(raw[output.offset], output.error, processor.name)
                    said[self.as_written(refused, REJECTED)] += 1
            _apply(entries, state.changes())
        return said, entries

    async def entries(self, processor: Processor, number: int) -> dict[bytes, bytes]:
        """Read what the state topic holds, as compaction would leave it."""
        entries: dict[bytes, bytes] = {}
        for record in await self.records(processor.state_topic, number):
            if not (record.key or b"").startswith(b"@"):
                _apply(entries, {record.key or b"": record.value})
        return entries

    def as_written(self, event: Event, topic: str) -> tuple[str, bytes]:
        value, _ = encode_claim_checked(event, uri_of=self.blobs.uri_of)
        return topic, value

    def alive(self) -> list["subprocess.Popen[bytes]"]:
        return [worker for worker in self.workers if worker.poll() is None]

    def kill(self, worker: "subprocess.Popen[bytes]", how: int = signal.SIGKILL) -> None:
        worker.send_signal(how)
        worker.wait(60)

    async def supervise(self) -> None:
        """Start again what ended by itself, as a supervisor does."""
        while True:
            for at, worker in enumerate(self.workers):
                if worker.poll() not in (None, -signal.SIGKILL, -signal.SIGTERM, 0):
                    self.workers[at] = self.start_worker()
                    self.workers.pop()
            await asyncio.sleep(0.5)

    def stop(self) -> None:
        for worker in self.alive():
            self.kill(worker)


@asynccontextmanager
async def a_rig(bootstrap: str, folder: Path, *, num_partitions: int = 4) -> AsyncIterator[Rig]:
    """Prepare topics and a configuration; end every worker at the end."""
    access = KafkaAccess(bootstrap=bootstrap)
    await ensure_topics(access, num_partitions=num_partitions)
    blobs_url = (folder / "blobs").as_uri()
    config = folder / "serve.yaml"
    config.write_text(
        f"reef:\n  state_dir: {folder / 'state'}\n"
        f"kafka:\n  port: {bootstrap.rpartition(':')[2]}\n  partitions: {num_partitions}\n"
        f"blobs:\n  url: {blobs_url}\nstreams:\n  tick_s: 0.5\n"
    )
    blobs = open_blob_store(blobs_url)
    async with (
        Publisher(access, blobs=blobs) as publisher,
        SchemaLog(access) as schema_log,
        Reader(access) as reader,
    ):
        rig = Rig(
            access=access,
            blobs=blobs,
            folder=folder,
            num_partitions=num_partitions,
            deployment=f"rig-{time_ns()}",
            config=config,
            publisher=publisher,
            resolver=Resolver(schema_log, blobs),
            reader=reader,
        )
        try:
            yield rig
        finally:
            rig.stop()


def a_release(seq: int, operation: Operation = Operation.TRAINING, **changes: Any) -> Event:
    fields = {
        "scenario": SCENARIO,
        "release_id": ReleaseId(f"release-{seq}"),
        "release_seq": seq,
        "operation": operation,
        "content_sha256": Sha256(f"{seq:064x}"),
        "batch_ids": (),
    }
    return a_release_published(**(fields | changes))


def a_conversation(
    name: str, num_calls: int, made_us: int
) -> Iterable[tuple[InferenceCompleted, FeedbackReported]]:
    """Turns that continue one another, each with its report."""
    session = Session(name)
    route = route_of_session(SCENARIO, session)
    tokens: list[int] = []
    for number in range(num_calls):
        receipt = receipt_at(number, session=session, made_us=made_us)
        tokens += [number + 1]
        call = a_call(number, tokens, [100 + number, 7], session=session, receipt=receipt)
        tokens += [100 + number, 7]
        yield call, a_report(f"{name}-{number}", receipt, route=route, score=1.0)


async def play_trainer(rig: Rig, stop: asyncio.Event, *, first_batch_s: float = 0.0) -> None:
    """Read batches and end each: two of three become releases, the third fails. The first may take long."""
    seq, seen = 1, 0
    while not stop.is_set():
        sealed: Sequence[BatchSealed] = await rig.events(TRAINING, BatchSealed)
        if sealed and not seen:
            await asyncio.sleep(first_batch_s)
        for seal in sealed[seen:]:
            if seal.batch_seq % 3 == 2:
                failed = a_training_failed(scenario=SCENARIO, batch_id=seal.batch_id)
                await rig.publisher.publish(failed)
            else:
                await rig.publisher.publish(a_release(seq, batch_ids=(seal.batch_id,)))
                seq += 1
        seen = len(sealed)
        await asyncio.sleep(0.2)


def _apply(entries: dict[bytes, bytes], changes: Mapping[bytes, bytes | None]) -> None:
    for key, value in changes.items():
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value


def _differing(stored: dict[bytes, bytes], expected: dict[bytes, bytes]) -> str:
    keys = [key for key in {*stored, *expected} if stored.get(key) != expected.get(key)]
    return f"{len(keys)} entries of {len(expected)}, such as {sorted(keys)[:3]}"


def _topics(counted: Written) -> dict[str, int]:
    return dict(Counter([topic for topic, _ in counted.elements()]))
