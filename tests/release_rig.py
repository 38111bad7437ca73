"""Shell: a release service on the real log and the real lakeFS, with candidates that tests make."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr
from safetensors.numpy import save_file

from release.base_model import describe_base_model
from release.chain import Chain
from release.composed import Service, make_service, run_service
from release.head import Release
from release.publish import Passed
from release.settings import ReleaseLimits, ReleaseSettings
from schemas.artifact_fetch import LakefsAccess
from schemas.artifacts import manifest_of
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Place, Publisher, Reader, Resolver, SchemaLog
from schemas.events import (
    ArtifactKind,
    CandidateEvaluated,
    CandidateTrained,
    Event,
    EventRejected,
    ReleasePublished,
    SwapRequested,
)
from schemas.ids import BatchId, CandidateId, ReleaseId, ScenarioName, derived_id
from schemas.manifest import MANIFEST_NAME, Manifest, manifest_sha256
from schemas.partitions import partition_of
from schemas.settings import EvaluationSettings
from schemas.topics import REJECTED, RELEASES
from tests.builders import a_candidate_trained
from tests.conftest import LakefsEndpoint

RECIPE = "recipes.sao.recipe:SAORecipe"
WEIGHTS = "model.safetensors"
ADAPTER = "adapter_model.safetensors"
SHAPES: Mapping[str, tuple[int, ...]] = {"model.a.weight": (4, 8), "model.b.weight": (3,)}
UNTIL_S_MAX = 60
POLL_S = 0.1
Arrays = dict[str, NDArray[np.float32]]


def weights(number: float = 1) -> Arrays:
    """Give the tensors of a model whose only difference from others is a number."""
    return {name: np.full(shape, number, dtype=np.float32) for name, shape in SHAPES.items()}


def an_adapter(number: float = 1, *, rank: int = 2) -> Arrays:
    """Give the tensors of an adapter of `model.a`."""
    target = "base_model.model.model.a"
    return {
        f"{target}.lora_A.weight": np.full((rank, 8), number, dtype=np.float32),
        f"{target}.lora_B.weight": np.full((4, rank), number, dtype=np.float32),
    }


def save_base_model(folder: Path) -> Path:
    """Write a base model that nobody could run."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    save_file(weights(0), folder / WEIGHTS)
    return folder


def save_candidate(
    folder: Path,
    number: int,
    base: ReleaseId,
    *,
    kind: ArtifactKind = ArtifactKind.CHECKPOINT,
    files: Mapping[str, Arrays | bytes] | None = None,
    **changes: Any,
) -> CandidateTrained:
    """Write the export of candidate `number`, and give the event that announces it."""
    place = folder / f"candidate-{number}"
    place.mkdir(parents=True)
    for name, content in ({WEIGHTS: weights(number)} if files is None else files).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (place / name).write_bytes(content)
        else:
            save_file(content, place / name)
    batch_id = BatchId(derived_id("batch", str(folder), str(number)))
    manifest = Manifest(
        kind=kind, files=manifest_of(place, kind).files, base_release_id=base, batch_ids=(batch_id,)
    )
    (place / MANIFEST_NAME).write_bytes(manifest.encode())
    return a_candidate_trained(
        candidate_id=CandidateId(derived_id("candidate", str(folder), str(number))),
        batch_id=batch_id,
        batch_seq=number,
        kind=kind,
        base_release_id=base,
        artifact_uri=place.absolute().as_uri(),
        manifest_sha256=manifest_sha256(manifest.encode()),
        **changes,
    )


def lakefs_access(endpoint: LakefsEndpoint) -> LakefsAccess:
    """Give a server's address and keys as services take them."""
    return LakefsAccess(
        endpoint=endpoint.url,
        access_key_id=endpoint.access_key_id,
        secret_access_key=SecretStr(endpoint.secret_access_key),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRig:
    """One scenario: its settings, its log, its chain."""

    scenario: ScenarioName
    settings: ReleaseSettings
    folder: Path

    @property
    def chain(self) -> Chain:
        return Chain(self.settings.lakefs, self.scenario, storage_namespace=self.settings.storage_namespace)

    def evaluating(self, **evaluation: Any) -> "ReleaseRig":
        """Give the rig with other evaluation settings."""
        given = EvaluationSettings(**({"free_bytes_min": 0} | evaluation))
        return replace(self, settings=replace(self.settings, evaluation=given))

    @asynccontextmanager
    async def running(self, *, passed: Passed = lambda point: None) -> AsyncIterator[Service]:
        """Run a worker beside the block."""
        open_now = {"desk_followed": asyncio.Event(), "scenarios_followed": asyncio.Event()}

        def noted(point: str) -> None:
            if point in open_now:
                open_now[point].set()
            passed(point)

        service = make_service(self.settings, passed=noted)
        working = asyncio.ensure_future(run_service(service, [(self.scenario, RECIPE)]))
        try:
            yield service
        finally:
            for (
                event
            ) in open_now.values():  # aiokafka leaves connections behind when its opening is cancelled
                await asyncio.wait_for(event.wait(), UNTIL_S_MAX)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            if not working.cancelled() and (error := working.exception()) is not None:
                raise error

    async def publish(self, *events: Event) -> None:
        """Write events as other services do."""
        async with Publisher(self.settings.kafka, blobs=self.settings.blobs) as publisher:
            for event in events:
                await publisher.publish(event)

    async def until(
        self,
        holds: Callable[[list[Event]], bool],
        *,
        copies: bool = False,
        stops: Callable[[], bool] = lambda: False,
    ) -> list[Event]:
        """Read what was answered until that holds of it, or until somebody says stop.

        Each event comes once by its id, unless copies count.
        """
        found: list[Event] = []
        async with asyncio.timeout(UNTIL_S_MAX):
            async for event in self._answers():
                if event is not None and (copies or id_of(event) not in {id_of(one) for one in found}):
                    found.append(event)
                if holds(found) or stops():
                    return found
        raise AssertionError("the log does not end")

    async def until_seq(self, seq: int) -> ReleasePublished:
        """Wait for a release, and for the request to serve it."""
        found = await self.until(lambda events: has_seq(events, seq))
        return next(e for e in found if isinstance(e, ReleasePublished) and e.release_seq == seq)

    async def verdict(self, candidate: CandidateTrained) -> CandidateEvaluated:
        """Wait for a candidate's verdict."""
        found = await self.until(lambda events: any(is_about(event, candidate) for event in events))
        return next(e for e in found if isinstance(e, CandidateEvaluated) and is_about(e, candidate))

    async def _answers(self) -> AsyncIterator[Event | None]:
        """Give what is answered, and None whenever nothing is new."""
        async with (
            Publisher(self.settings.kafka, blobs=self.settings.blobs) as publisher,
            Reader(self.settings.kafka) as reader,
            SchemaLog(self.settings.kafka) as schemas,
        ):
            resolver = Resolver(schemas, self.settings.blobs)
            key = self.scenario.encode()
            starts = {}
            for topic in (RELEASES, REJECTED):
                place = Place(topic, partition_of(key, await publisher.num_partitions(topic)))
                starts[place] = await reader.log_start(*place)
            await reader.follow(starts)
            while True:
                for record in await reader.poll(POLL_S):
                    if record.key == key:
                        yield await resolver.resolve(record)
                yield None

    async def releases(self) -> tuple[Release, ...]:
        """Walk the chain."""
        return await self.chain.releases()

    def candidate(self, number: int, base: ReleaseId, **changes: Any) -> CandidateTrained:
        """Write an export of this scenario."""
        return save_candidate(self.folder / "exports", number, base, scenario=self.scenario, **changes)


def id_of(event: Event) -> tuple[str, str]:
    """Name an answer, so that its copies are seen as one."""
    match event:
        case CandidateEvaluated():
            return "evaluated", event.candidate_id
        case ReleasePublished():
            return "published", event.release_id
        case SwapRequested():
            return "swap", event.swap_id
        case EventRejected():
            return "rejected", event.event_id
        case _:
            raise AssertionError(f"no answer: {event}")


def is_about(event: Event, candidate: CandidateTrained) -> bool:
    """Whether this is the candidate's verdict."""
    return isinstance(event, CandidateEvaluated) and event.candidate_id == candidate.candidate_id


def has_seq(events: list[Event], seq: int) -> bool:
    """Whether a release and its swap are there."""
    kinds = {
        type(e) for e in events if isinstance(e, ReleasePublished | SwapRequested) and e.release_seq == seq
    }
    return kinds == ({ReleasePublished, SwapRequested} if seq else {ReleasePublished})


def make_rig(
    kafka: KafkaAccess, lakefs: LakefsAccess, folder: Path, scenario: ScenarioName, **evaluation: Any
) -> ReleaseRig:
    """Put a rig together; the base model is made if it is not there."""
    model = folder / "model"
    if not model.exists():
        save_base_model(model)
    settings = ReleaseSettings(
        kafka=kafka,
        blobs=open_blob_store((folder / "blobs").as_uri()),
        lakefs=lakefs,
        storage_namespace="local://",
        state_dir=folder,
        base=describe_base_model(model),
        evaluation=EvaluationSettings(**({"free_bytes_min": 0} | evaluation)),
        metrics_port=0,
        limits=ReleaseLimits(wait_s=0.2, retry_s=0.2, retry_s_max=1.0, disk_retry_s=0.2, reconcile_s=1.0),
    )
    return ReleaseRig(scenario=scenario, settings=settings, folder=folder)


def rig_from(words: str) -> ReleaseRig:
    """Give the rig that a parent process described; see `words_of`."""
    told = json.loads(words)
    lakefs = LakefsAccess(
        endpoint=told["lakefs"], access_key_id=told["key"], secret_access_key=SecretStr(told["secret"])
    )
    return make_rig(
        KafkaAccess(bootstrap=told["kafka"]), lakefs, Path(told["folder"]), ScenarioName(told["scenario"])
    )


def words_of(rig: ReleaseRig) -> str:
    """Describe a rig to a child process."""
    lakefs = rig.settings.lakefs
    return json.dumps(
        {
            "kafka": rig.settings.kafka.bootstrap,
            "lakefs": lakefs.endpoint,
            "key": lakefs.access_key_id,
            "secret": lakefs.secret_access_key.get_secret_value(),
            "folder": str(rig.folder),
            "scenario": rig.scenario,
        }
    )


def refusals(events: list[Event]) -> list[str]:
    """Give the reasons of refused commands."""
    return [event.reason for event in events if isinstance(event, EventRejected)]
