"""The session fold through Faust, beside a Faust agent without logic: `python -m tests.bench.bench_streams`.

Both read the same bytes through the same consumer and write the same outputs, the same state entries and the
same offsets, one transaction a batch; the one without logic looks up by offset what to write.
One run, a broker for each turn.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, time_ns
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry

from deploy.embedded.kafka import Kafka, KafkaOptions
from deploy.ports import free_port
from deploy.settings import read_cache_dir
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Outgoing, Publisher, Reader, Record, TransactionalPublisher
from schemas.codec import encode
from schemas.events import Event
from schemas.logs import configure_logs
from schemas.partitions import partition_of
from schemas.records import Place
from schemas.topic_admin import ensure_topics
from schemas.topics import INTERACTIONS, SESSION_STATE, key_of
from streams.drive import Partition
from streams.metrics import StreamMetrics
from streams.outputs import Emitted, FoldState, Timed
from streams.ownership import Ownership
from streams.processor import Processor
from streams.readback import ReadBack
from streams.settings import WorkerSettings
from streams.topology import processors
from streams.worker import run_ownership
from tests.bench.bench_fold import call_of, template
from tests.unit.streams.folding import a_configuration, a_report

NUM_PARTITIONS = 4
NUM_EVENTS = 12_000
WARM_EVENTS = 2_000
ROUNDS = 2
"""In turns; the best of each counts, since whatever else the machine does can only slow one down."""
RECIPE = "tests.unit.streams.recipes:ScoreRecipe"
OPEN_S_MAX = 120.0
RUN_S_MAX = 300.0

Canned = dict[tuple[int, int], list[tuple[str, bytes, bytes | None, int | None]]]
"""By partition and offset: topic, key, value and partition of what is to be written."""


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        run_child(*sys.argv[2:])
        return
    events = conversation_events(NUM_EVENTS)
    rates = {"without logic": 0.0, "with logic": 0.0}
    for _ in range(ROUNDS):
        for name, best in rates.items():
            rates[name] = max(best, events_per_s(events, name))
    for name, rate in rates.items():
        say(f"session fold through Faust, {name}", events_per_s=round(rate))
    say("with logic / without logic", ratio=round(rates["with logic"] / rates["without logic"], 3))


def conversation_events(count: int) -> list[Event]:
    """Calls of 500 tokens, one report a call, ten calls to a session."""
    whole = template()
    events: list[Event] = []
    for number in range(count // 2):
        call = call_of(whole, number, number // 10)
        events += [call, a_report(f"b{number}", call.receipt, route=call.route)]
    return events


def session_row() -> Processor:
    return next(each for each in processors() if each.name == "session")


def canned_of(events: Sequence[Event]) -> Canned:
    """Fold everything beforehand; what comes of each event is kept as bytes."""
    row = session_row()
    states = [row.new_state(number, NUM_PARTITIONS) for number in range(NUM_PARTITIONS)]
    logs: list[dict[int, Timed]] = [{} for _ in states]
    canned: Canned = {}
    placed = [(number, a_configuration(recipe=RECIPE)) for number in range(NUM_PARTITIONS)]
    placed += [(partition_of(key_of(event), NUM_PARTITIONS), event) for event in events]  # type: ignore[misc]
    now_us = time_ns() // 1_000
    for number, event in placed:
        offset = len(logs[number])
        timed = Timed(event=event, time_us=now_us, partition=number, offset=offset, key=key_of(event))
        logs[number][offset] = timed
        _, outputs = row.step(states[number], timed, logs[number])
        written: list[tuple[str, bytes, bytes | None, int | None]] = [
            (each.topic, key_of(each.event), encode(each.event), each.partition)
            for each in outputs
            if isinstance(each, Emitted)
        ]
        written += [(SESSION_STATE, key, value, number) for key, value in states[number].changes().items()]
        canned[number, offset] = written
    return canned


class CannedPartition(Partition):
    """A partition whose records are not looked at: what to write is known by offset."""

    canned: ClassVar[Canned] = {}

    async def _take_all(
        self,
        publisher: TransactionalPublisher,
        state: FoldState,
        readback: ReadBack,
        records: Sequence[Record],
    ) -> None:
        if not records:
            return
        number, last = self.place.partition, records[-1].offset
        entries: dict[bytes, bytes | None] = {self._last_key: last.to_bytes(8, "little")}
        outgoing: list[Outgoing] = []
        for record in records:
            for topic, key, value, partition in self.canned[number, record.offset]:
                if topic == SESSION_STATE:
                    entries[key] = value
                else:
                    outgoing.append(Outgoing(topic=topic, key=key, value=value, partition=partition))
        outgoing += [
            Outgoing(topic=SESSION_STATE, key=key, value=value, partition=number)
            for key, value in entries.items()
        ]
        async with publisher.transaction():
            for each in outgoing:
                await publisher.send_record(each)
            await publisher.send_offsets({self.place: last + 1}, group=self._around.group)
        self.next_offset = last + 1
        self._progress()


def run_child(name: str, bootstrap: str, folder: str) -> None:
    """Be the worker."""
    configure_logs(service="streams", log_format="json", level="warning")
    is_plain = name == "with logic"
    if not is_plain:
        CannedPartition.canned = canned_of(conversation_events(NUM_EVENTS))
    settings = WorkerSettings(
        deployment="bench",
        number=0,
        access=KafkaAccess(bootstrap=bootstrap),
        blobs_url=(Path(folder) / "blobs").as_uri(),
        folder=Path(folder) / "worker",
        tick_s=60,
        metrics_port=None,
    )
    ownership = Ownership([session_row()], Partition if is_plain else CannedPartition)
    run_ownership(settings, StreamMetrics(CollectorRegistry()), ownership)


def events_per_s(events: Sequence[Event], name: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        kafka = Kafka(KafkaOptions(state_dir=Path(folder), cache_dir=read_cache_dir(), port=free_port()))
        kafka.prepare()
        kafka.start()
        try:
            kafka.wait_ready()
            return asyncio.run(measure(kafka.bootstrap, Path(folder), events, name))
        finally:
            kafka.stop()


async def measure(bootstrap: str, folder: Path, events: Sequence[Event], name: str) -> float:
    access = KafkaAccess(bootstrap=bootstrap)
    await ensure_topics(access, num_partitions=NUM_PARTITIONS)
    blobs = open_blob_store((folder / "blobs").as_uri())
    async with Publisher(access, blobs=blobs) as publisher, Reader(access) as reader:
        for number in range(NUM_PARTITIONS):
            await publisher.publish(a_configuration(recipe=RECIPE), topic=INTERACTIONS, partition=number)
        words = ("-m", "tests.bench.bench_streams", "child", name, bootstrap, str(folder))
        child = subprocess.Popen((sys.executable, *words))
        try:
            await until_folded(reader, NUM_PARTITIONS, OPEN_S_MAX)
            outgoing = [Outgoing(topic=INTERACTIONS, key=key_of(each), value=encode(each)) for each in events]
            await feed(publisher, outgoing[:WARM_EVENTS])
            await until_folded(reader, NUM_PARTITIONS + WARM_EVENTS, RUN_S_MAX)
            began_s = monotonic()
            await feed(publisher, outgoing[WARM_EVENTS:])
            fed_s = monotonic() - began_s
            await until_folded(reader, NUM_PARTITIONS + len(events), RUN_S_MAX)
            took_s = monotonic() - began_s
            say(f"written for the one {name}", seconds=round(fed_s, 1), of_seconds=round(took_s, 1))
            return (len(events) - WARM_EVENTS) / took_s
        finally:
            child.terminate()
            child.wait(30)


async def feed(publisher: Publisher, records: Sequence[Outgoing]) -> None:
    sent = [await publisher.send_record(each) for each in records]
    for delivery in sent:
        await delivery


async def until_folded(reader: Reader, count: int, within_s: float) -> None:
    """Wait until so many events of the log are in the committed state."""
    deadline_s = monotonic() + within_s
    positions: dict[Place, int] = {Place(SESSION_STATE, number): 0 for number in range(NUM_PARTITIONS)}
    last: dict[int, int] = dict.fromkeys(range(NUM_PARTITIONS), -1)
    key = f"@{INTERACTIONS}".encode()
    while sum(last.values()) + NUM_PARTITIONS < count:
        assert monotonic() < deadline_s, f"folded up to {last}"
        for place, first in positions.items():
            async for record in reader.read_to_end(*place, first):
                positions[place] = record.offset + 1
                if record.key == key and record.value is not None:
                    last[place.partition] = int.from_bytes(record.value, "little")
        await asyncio.sleep(0.05)


def say(what: str, **figures: Any) -> None:
    sys.stdout.write(json.dumps({"bench": what, **figures}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
