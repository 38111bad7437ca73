"""A replay of a real broker's log: what was trained live comes out again, and nothing live is touched."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from pyarrow import parquet

from deploy.embedded.kafka import Kafka
from schemas.codec import encode
from schemas.errors import RejectedError
from schemas.events import ErasureRequested, OutcomeSettled, TrainingSample
from schemas.topics import EXPERIENCE, INTERACTIONS, OUTCOMES, TRAINING
from streams.replay.manifest import read_manifest
from streams.replay.ranges import read_point
from streams.replay.request import Deployment, Request, Result
from streams.replay.run import replay
from tests.streams_rig import ROOT, Rig, a_conversation, a_rig, play_trainer

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

NUM_CALLS, BATCH_SIZE = 36, 4


async def lived(rig: Rig) -> None:
    """A worker and a trainer for a while; then nobody writes any more."""
    await rig.configure(batch_size=BATCH_SIZE, max_staleness=100)
    worker, stop = rig.start_worker(), asyncio.Event()
    trainer = asyncio.ensure_future(play_trainer(rig, stop))
    now_us = time_ns() // 1_000
    for number in range(NUM_CALLS // 3):
        for call, report in a_conversation(f"replayed-{number}", 3, now_us):
            await rig.publisher.send(call)
            await rig.publisher.publish(report)
    await rig.until(OUTCOMES, OutcomeSettled, NUM_CALLS - BATCH_SIZE + 1)
    stop.set()
    await trainer
    await rig.settled()
    rig.kill(worker)


class Replays:
    """Replays of one rig's log."""

    def __init__(self, rig: Rig) -> None:
        blobs_url = (rig.folder / "blobs").as_uri()
        self.deployment = Deployment(access=rig.access, blobs_url=blobs_url, copies=1)
        self.folder = rig.folder
        self.count = 0

    async def run(self, **wanted: Any) -> Result:
        self.count += 1
        work = self.folder / f"work-{self.count}"
        work.mkdir()
        return await asyncio.to_thread(
            replay, Request(**wanted), self.deployment, work, lambda step, done, total: None
        )


async def ends(rig: Rig) -> dict[str, list[int]]:
    topics = (INTERACTIONS, EXPERIENCE, TRAINING, OUTCOMES, "reef.commands.v1", "reef.releases.v1")
    return {
        topic: [await rig.reader.end_offset(topic, number) for number in range(rig.num_partitions)]
        for topic in (*topics, "reef.candidates.v1", "reef.serving.v1", "reef.rejected.v1")
    }


async def test_a_replay_is_what_was_trained_live_and_touches_nothing(
    kafka_factory: Callable[[], Kafka], tmp_path: Path
) -> None:
    async with a_rig(kafka_factory().bootstrap, tmp_path) as rig:
        await lived(rig)
        before = await ends(rig)
        replays = Replays(rig)
        first = await replays.run(out=tmp_path / "one", is_compared=True, jobs=1)
        again = read_manifest((tmp_path / "one" / "manifest.json").read_text())
        second = await replays.run(out=tmp_path / "two", manifest=again, jobs=1)
        await check_equal_to_live(rig, tmp_path / "one", first)
        assert (first.digest, first.outputs) == (second.digest, second.outputs)
        assert second.warnings == ()
        await check_topics(rig, replays)
        await check_ranges(rig, replays)
        check_command(rig)
        assert await ends(rig) == before, "something live was written"
        await check_erased(rig, replays)
        await check_truncated(rig, replays)


async def check_equal_to_live(rig: Rig, folder: Path, result: Result) -> None:
    live: list[TrainingSample] = await rig.events(TRAINING, TrainingSample)
    assert len(live) >= NUM_CALLS - BATCH_SIZE
    difference = dict(result.difference or {})
    assert difference.pop("samples") == {"live": len(live), "replay": len(live)}
    assert difference.pop("experiences") == dict.fromkeys(("recorded", "recomputed", "same"), NUM_CALLS)
    assert difference == dict.fromkeys(("appears", "vanishes", "changes", "moves"), 0)
    rows = parquet.read_table(folder / "samples").to_pylist()
    by_id = {row["experience_id"]: row for row in rows}
    assert len(by_id) == len(rows) == len(live)
    for sample in live:
        made, row = sample.experience, by_id[sample.experience.experience_id]
        assert (row["batch_id"], row["index"]) == (sample.batch_id, sample.index)
        assert bytes(row["loss_mask"]) == made.loss_mask
        assert b"".join(token.to_bytes(4, "little") for token in row["token_ids"]) == made.token_ids
        assert (row["reward"], tuple(row["receipts"])) == (made.reward, made.receipts)
        assert len(row["logprobs"]) == len(row["temperatures"]) == len(row["token_ids"])


async def check_topics(rig: Rig, replays: Replays) -> None:
    await replays.run(suffix="again")
    name = f"{TRAINING}.replay.again"
    live = [encode(each) for each in await rig.events(TRAINING, object)]
    assert [encode(each) for each in await rig.events(name, object)] == live
    with pytest.raises(RejectedError, match="holds records"):
        await replays.run(suffix="again")


async def check_ranges(rig: Rig, replays: Replays) -> None:
    with pytest.raises(RejectedError, match="begin later"):
        await replays.run(first=read_point("2001-01-01", "--from"), is_compared=True)
    middle = await replays.run(first=read_point("3", "--from"), is_compared=True)
    assert 0 < middle.counts["ExperienceAssembled"] < NUM_CALLS
    assert middle.counts["BatchSealed"] > 0, "the configuration and the head are those in force before"
    assert middle.num_before_range > 0, "reports on calls that were left out"


def check_command(rig: Rig) -> None:
    """As people type it; with two processes, and a refusal."""

    def reef(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            (sys.executable, "-m", "deploy.cli", "replay", "-c", str(rig.config), *words),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=rig.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    told = reef("--set", "batch_size=2", "--diff", "--json")
    assert told.returncode == 0, told.stderr
    said = json.loads(told.stdout)
    assert said["counts"]["BatchSealed"] > said["difference"]["samples"]["live"] // BATCH_SIZE
    assert said["difference"]["changes"] == said["difference"]["vanishes"] == 0
    for words in (
        ["--from", "2001-01-01", "--diff"],
        ["--out-topics", "reef.training.v1"],
        ["--set", "no_option=1", "--diff"],
        ["--diff", "--manifest", str(rig.config)],
    ):
        refused = reef(*words)
        assert refused.returncode == 2, (words, refused.stderr)
        assert refused.stderr.splitlines()[-1].startswith("reef: "), refused.stderr


async def check_erased(rig: Rig, replays: Replays) -> None:
    """STREAMS 30: it is applied from the start, also where it stands behind the range."""
    live: list[TrainingSample] = await rig.events(TRAINING, TrainingSample)
    erased = live[0].experience
    event = ErasureRequested(
        scenario=live[0].scenario, session=None, receipts=erased.receipts, requested_at_us=1
    )
    await rig.publisher.publish_to_all(event, topic=INTERACTIONS)
    result = await replays.run(out=rig.folder / "erased", is_compared=True)
    assert result.num_erasures == 1
    lines = (rig.folder / "erased" / "difference.jsonl").read_text().splitlines()
    vanished = [each for each in map(json.loads, lines) if each["what"] == "vanishes"]
    reasons = {each["experience_id"]: each["why"] for each in vanished}
    assert reasons.pop(erased.experience_id) == "forgotten"
    assert set(reasons.values()) <= {"waiting"}, "the last batch is no longer full"
    assert len(reasons) < BATCH_SIZE


async def check_truncated(rig: Rig, replays: Replays) -> None:
    """When a retention has taken the beginning: what is left can be replayed, what is gone is refused."""
    manifest = read_manifest((rig.folder / "one" / "manifest.json").read_text())
    admin = AIOKafkaAdminClient(bootstrap_servers=rig.access.bootstrap)
    await admin.start()
    await admin.delete_records({TopicPartition(INTERACTIONS, 1): RecordsToDelete(2)})
    await admin.close()
    for wanted in ({"manifest": manifest}, {"first": read_point("1", "--from")}):
        with pytest.raises(RejectedError, match="begin later") as refused:
            await replays.run(is_compared=True, **wanted)
        assert refused.value.reason == "before_log_start"
    left = await replays.run(is_compared=True)
    assert 0 < left.counts["ExperienceAssembled"] <= NUM_CALLS
