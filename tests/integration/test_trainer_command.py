"""`reef trainer` on the real log: batches in, candidates out, whatever happens to the process or the log."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from deploy.lakefs_access import ACCESS_KEY, SECRET_KEY
from deploy.ports import free_port
from schemas.artifacts import manifest_of, read_manifest, verify_folder
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Publisher, Reader, Resolver, SchemaLog
from schemas.events import CandidateTrained, TrainingFailed, TrainingSample
from schemas.ids import BatchId, ScenarioName
from schemas.manifest import manifest_sha256
from schemas.partitions import partition_of
from schemas.topic_admin import ensure_topics
from schemas.topics import CANDIDATES, TOPICS, TRAINING
from tests.builders import a_training_sample
from tests.tiny import a_batch, save_tiny_model
from tests.trainer_runs import events_in, path_of
from trainers.batch import Batch

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WAIT_S_MAX = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A trainer's surroundings: a broker, a scenario of its own, a tiny model, a configuration."""

    bootstrap: str
    scenario: ScenarioName
    folder: Path
    model: Path

    @property
    def access(self) -> KafkaAccess:
        return KafkaAccess(bootstrap=self.bootstrap)

    @property
    def blobs_uri(self) -> str:
        return (self.folder / "state" / "blobs").as_uri()

    @property
    def config(self) -> Path:
        return self.folder / "serve.yaml"

    def batch(self, seq: int, base: CandidateTrained | None = None) -> Batch:
        folder = path_of(base.artifact_uri) if base else self.model
        batch = a_batch(
            seq, base_artifact_uri=folder.as_uri(), base_content_sha256=manifest_of(folder).content_sha256
        )
        return replace(batch, sealed=replace(batch.sealed, scenario=self.scenario))


def a_deployment(bootstrap: str, folder: Path) -> Deployment:
    scenario = ScenarioName(f"tiny-{uuid4().hex[:12]}")
    deployment = Deployment(
        bootstrap=bootstrap, scenario=scenario, folder=folder, model=save_tiny_model(folder / "model")
    )
    settings = {
        "reef": {"scenarios": [str(scenario)], "state_dir": str(folder / "state")},
        "inference": {"model": str(deployment.model)},
        "training": {"threads": 1, "learning_rate": 1e-3, "device": "cpu", "collective_timeout_s": 60},
        "kafka": {"bootstrap": "embedded", "port": int(bootstrap.rpartition(":")[2])},
        "observability": {"metrics_port": free_port() - 1, "log_format": "json"},
    }
    deployment.config.write_text(json.dumps(settings))
    asyncio.run(ensure_topics(deployment.access))
    return deployment


@pytest.fixture
def deployment(kafka_bootstrap: str, tmp_path: Path) -> Deployment:
    return a_deployment(kafka_bootstrap, tmp_path)


def command(deployment: Deployment, *words: str) -> list[str]:
    return [sys.executable, "-m", "deploy.cli", "trainer", "-c", str(deployment.config), *words]


def environment() -> dict[str, str]:
    """Give keys of a lakeFS that these tests never ask: their releases are folders."""
    return {**os.environ, ACCESS_KEY: "unused", SECRET_KEY: "unused"}


@contextmanager
def running(deployment: Deployment, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a trainer; end it with whatever it started."""
    with (deployment.folder / "trainer.log").open("ab") as log:
        child = subprocess.Popen(
            command(deployment, *words), stderr=log, start_new_session=True, env=environment()
        )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


async def send(deployment: Deployment, batch: Batch) -> None:
    async with Publisher(deployment.access, blobs=open_blob_store(deployment.blobs_uri)) as publisher:
        for sample in samples_of(deployment, batch):
            await publisher.publish(sample)
        await publisher.publish(batch.sealed)


def samples_of(deployment: Deployment, batch: Batch) -> list[TrainingSample]:
    return [
        a_training_sample(
            batch_id=batch.sealed.batch_id,
            scenario=deployment.scenario,
            index=index,
            experience=replace(experience, scenario=deployment.scenario),
        )
        for index, experience in enumerate(batch.experiences)
    ]


Announced = CandidateTrained | TrainingFailed
Child = subprocess.Popen[bytes]


async def announced(deployment: Deployment, trainer: Child) -> AsyncIterator[Announced]:
    """Give what trainers said of this scenario, from the beginning on, while the trainer lives."""
    partition = partition_of(deployment.scenario.encode(), 8)
    async with Reader(deployment.access) as reader, SchemaLog(deployment.access) as schemas:
        resolver = Resolver(schemas, open_blob_store(deployment.blobs_uri))
        offset = await reader.log_start(CANDIDATES, partition)
        while True:
            end = await reader.end_offset(CANDIDATES, partition)
            async for record in reader.read_to_end(CANDIDATES, partition, offset):
                event = await resolver.resolve(record)
                assert isinstance(event, Announced)
                if event.scenario == deployment.scenario:
                    yield event
            offset = end
            assert trainer.poll() is None, (deployment.folder / "trainer.log").read_text()[-2_000:]
            await asyncio.sleep(0.05)


async def _until(
    deployment: Deployment, trainer: Child, is_enough: Callable[[list[Announced]], bool]
) -> list[Announced]:
    found: list[Announced] = []
    async with asyncio.timeout(WAIT_S_MAX):
        async for event in announced(deployment, trainer):
            found.append(event)
            if is_enough(found):
                break
    return found


def first_events(deployment: Deployment, num: int, trainer: Child) -> list[Announced]:
    """Wait for this many events."""
    return asyncio.run(_until(deployment, trainer, lambda found: len(found) == num))


def events_until_trained(deployment: Deployment, seq: int, trainer: Child) -> list[Announced]:
    """Wait for the candidate of a batch; give all events until then, repeats included."""

    def is_there(found: list[Announced]) -> bool:
        return isinstance(found[-1], CandidateTrained) and found[-1].batch_seq == seq

    return asyncio.run(_until(deployment, trainer, is_there))


def first_candidates(deployment: Deployment, num: int, trainer: Child) -> list[CandidateTrained]:
    found = first_events(deployment, num, trainer)
    assert all(isinstance(event, CandidateTrained) for event in found), found
    return [event for event in found if isinstance(event, CandidateTrained)]


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_sealed_batch_becomes_a_candidate_that_holds_what_it_announces(
    deployment: Deployment, num_ranks: int
) -> None:
    batch = deployment.batch(0)
    with running(deployment, "--training.ranks", str(num_ranks)) as trainer:
        asyncio.run(send(deployment, batch))
        (candidate,) = first_candidates(deployment, 1, trainer)
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(60) == 0
    folder = path_of(candidate.artifact_uri)
    manifest, data = read_manifest(folder)
    verify_folder(folder, manifest)
    assert candidate.manifest_sha256 == manifest_sha256(data)
    assert (candidate.batch_id, candidate.step) == (batch.sealed.batch_id, 1)
    assert {"sao/policy_lag_max", "sao/effective_token_rate", "critic/explained_variance"} <= set(
        candidate.metrics
    )


def test_a_trainer_killed_between_batches_goes_on_behind_what_it_has_trained(deployment: Deployment) -> None:
    asyncio.run(send(deployment, deployment.batch(0)))
    with running(deployment) as trainer:
        (first,) = first_candidates(deployment, 1, trainer)
        trainer.kill()
        trainer.wait()
    asyncio.run(send(deployment, deployment.batch(1, first)))
    with running(deployment) as trainer:
        _, again, second = first_candidates(deployment, 3, trainer)
    assert again == first
    assert (second.batch_seq, second.step, second.optimizer.value) == (1, 2, "kept")


def test_a_lost_rank_ends_the_others_and_the_next_start_trains_each_batch_once(
    deployment: Deployment,
) -> None:
    """Killed with a batch under way: whoever starts the trainer again finds the checkpoint before it."""
    two_ranks = ("--training.ranks", "2")
    with running(deployment, *two_ranks) as trainer:
        asyncio.run(send(deployment, deployment.batch(0)))
        (first,) = first_candidates(deployment, 1, trainer)
        ranks = psutil.Process(trainer.pid).children()
        (lost,) = [rank for rank in ranks if rank.cmdline()[0] == "reef: trainer 1"]
        asyncio.run(send(deployment, deployment.batch(1, first)))
        lost.kill()
        assert trainer.wait(90) == signal.SIGKILL
        assert not [rank for rank in ranks if rank.is_running()]
    with running(deployment, *two_ranks) as trainer:
        events = events_until_trained(deployment, 1, trainer)
    candidates = [event for event in events if isinstance(event, CandidateTrained)]
    assert len(candidates) == len(events)
    assert {(each.batch_seq, each.step) for each in candidates} == {(0, 1), (1, 2)}
    assert len({each.candidate_id for each in candidates}) == 2


def test_a_sample_that_cannot_be_read_fails_its_batch_alone(deployment: Deployment) -> None:
    """CASES 12 and DESIGN rule 4: nothing vanishes, and nobody waits for ever."""
    broken = deployment.batch(0)
    with running(deployment) as trainer:
        asyncio.run(send(deployment, replace(broken, experiences=broken.experiences[1:])))
        (failed,) = first_events(deployment, 1, trainer)
        asyncio.run(send(deployment, deployment.batch(1)))
        _, trained = first_events(deployment, 2, trainer)
    assert isinstance(failed, TrainingFailed)
    assert (failed.batch_id, failed.reason) == (broken.sealed.batch_id, "incomplete_batch")
    assert isinstance(trained, CandidateTrained)
    assert trained.batch_seq == 1


def run_to_its_end(deployment: Deployment, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        command(deployment, *words),
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
        env=environment(),
    )
    return done.returncode, done.stdout + done.stderr


async def truncate(deployment: Deployment) -> None:
    """Delete every record of the scenario's partition."""
    partition = partition_of(deployment.scenario.encode(), 8)
    async with Reader(deployment.access) as reader:
        end = await reader.end_offset(TRAINING, partition)
    admin = AIOKafkaAdminClient(bootstrap_servers=deployment.bootstrap)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(TRAINING, partition): RecordsToDelete(before_offset=end)})
    finally:
        await admin.close()


def test_a_truncated_log_stops_the_trainer_loudly_until_the_batch_is_abandoned(
    deployment: Deployment,
) -> None:
    asyncio.run(send(deployment, deployment.batch(0)))
    with running(deployment) as trainer:
        first_candidates(deployment, 1, trainer)
    lost = deployment.batch(1)
    asyncio.run(send(deployment, lost))
    asyncio.run(truncate(deployment))
    code, said = run_to_its_end(deployment)
    assert code == 1
    assert "records are gone unread" in said
    code, said = run_to_its_end(deployment, "abandon", lost.sealed.batch_id)
    assert code == 0, said
    with running(deployment) as trainer:
        asyncio.run(send(deployment, deployment.batch(2)))
        events = events_until_trained(deployment, 2, trainer)
    failed = [event for event in events if isinstance(event, TrainingFailed)]
    assert {(event.batch_id, event.reason) for event in failed} == {(lost.sealed.batch_id, "abandoned")}
    assert lost.sealed.batch_id not in {e.batch_id for e in events if isinstance(e, CandidateTrained)}


def test_only_a_batch_that_is_ahead_can_be_abandoned(deployment: Deployment) -> None:
    asyncio.run(send(deployment, deployment.batch(0)))
    code, said = run_to_its_end(deployment, "abandon", BatchId("no-such-batch"))
    assert code == 1
    assert "no-such-batch, which is not there" in said


async def send_replay(deployment: Deployment, topic: str, *batches: Batch) -> None:
    """Write what `reef replay --out-topics` would."""
    await ensure_topics(deployment.access, specs=[replace(TOPICS[TRAINING], name=topic)], num_partitions=8)
    async with Publisher(deployment.access, blobs=open_blob_store(deployment.blobs_uri)) as publisher:
        for batch in batches:
            for sample in samples_of(deployment, batch):
                await publisher.publish(sample, topic=topic)
            await publisher.publish(batch.sealed, topic=topic)


def test_a_replay_is_trained_to_its_end_on_its_own_weights_and_nobody_is_told(deployment: Deployment) -> None:
    """Issue 9: the second batch goes on from the first one's weights, whatever base was recorded."""
    suffix, out = uuid4().hex[:12], deployment.folder / "what-if"
    words = ("--from-replay", suffix, "--out", str(out))
    topic = f"{TRAINING}.replay.{suffix}"
    asyncio.run(send_replay(deployment, topic))
    code, said = run_to_its_end(deployment, *words)
    assert code == 2
    assert f"expected batches of {deployment.scenario} in {topic}, got none" in said
    asyncio.run(send_replay(deployment, topic, *[deployment.batch(seq) for seq in range(2)]))
    for _ in range(2):  # the second time there is nothing left to do
        code, said = run_to_its_end(deployment, *words)
        assert code == 0, said
        found = events_in(out / "results.jsonl")
        assert [(one["batch_seq"], one["step"], one["optimizer"]) for one in found] == [
            (0, 1, "fresh"),
            (1, 2, "kept"),
        ]
    weights = path_of(found[-1]["artifact_uri"])
    assert weights.parent == out / "exports"
    verify_folder(weights, read_manifest(weights)[0])
    assert asyncio.run(num_announced(deployment)) == 0


async def num_announced(deployment: Deployment) -> int:
    """Count what is in the live log of this scenario's candidates."""
    partition = partition_of(deployment.scenario.encode(), 8)
    async with Reader(deployment.access) as reader, SchemaLog(deployment.access) as schemas:
        resolver = Resolver(schemas, open_blob_store(deployment.blobs_uri))
        first = await reader.log_start(CANDIDATES, partition)
        found = [
            await resolver.resolve(each) async for each in reader.read_to_end(CANDIDATES, partition, first)
        ]
    return sum(isinstance(event, Announced) and event.scenario == deployment.scenario for event in found)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--from-replay", "whatever"), "expected --from-replay SUFFIX with --out FOLDER"),
        (("--training.target", "none"), "expected one scenario to train, got 0"),
        (("--scenario", "another"), "expected one scenario to train, got 0"),
    ],
)
def test_a_configuration_that_trains_nothing_is_refused(
    deployment: Deployment, words: Sequence[str], expected: str
) -> None:
    code, said = run_to_its_end(deployment, *words)
    assert code == 2
    assert expected in said
