"""A whole trainer on a tiny model, beside a log that is a file: for killing it wherever it stands."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from schemas.artifacts import manifest_of
from schemas.errors import RejectedError
from schemas.events import CandidateTrained
from schemas.ids import ReleaseId, ScenarioName, Sha256
from tests.tiny import a_batch, a_blueprint
from trainers.base import Bases, untrained_of
from trainers.batch import Batch
from trainers.build import Blueprint, build
from trainers.checkpoint import Checkpoints
from trainers.export import Exports
from trainers.loop import Announcement, Trainer, run
from trainers.ranks import Ranks
from trainers.state import State, first_state
from trainers.step import StepLimits

Alter = Callable[[Batch], Batch]
OFFSETS_PER_BATCH = 10


class FileLog:
    """A log whose batches always follow from the events before them: each base is the last candidate, unless
    `bases` names another batch's (-1: the base model)."""

    def __init__(
        self, folder: Path, model: Path, *, offset: int, num_batches: int, bases: dict[int, int], alter: Alter
    ) -> None:
        self._events = folder / "events.jsonl"
        self._model = model
        self._next = offset // OFFSETS_PER_BATCH
        self._num_batches, self._bases, self._alter = num_batches, bases, alter

    @property
    def is_over(self) -> bool:
        return self._next >= self._num_batches

    def next_batch(self, wait_s: float) -> Batch | None:
        if self.is_over:
            return None
        seq, self._next = self._next, self._next + 1
        uri, content = self._base(self._bases.get(seq, seq - 1))
        return self._alter(a_batch(seq, base_artifact_uri=uri, base_content_sha256=content))

    def _base(self, seq: int) -> tuple[str, str]:
        announced = {event["batch_seq"]: event for event in events_in(self._events) if "content" in event}
        while seq >= 0 and seq not in announced:
            seq -= 1  # a failed batch leaves the head where it was
        if seq < 0:
            return self._model.as_uri(), manifest_of(self._model).content_sha256
        return announced[seq]["artifact_uri"], announced[seq]["content"]

    def announce(self, event: Announcement) -> None:
        line = {"batch_seq": self._next - 1} | asdict(event)
        if isinstance(event, CandidateTrained):
            line["content"] = manifest_of(path_of(event.artifact_uri)).content_sha256
        with self._events.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def is_announced(self, wait_s: float) -> bool:
        return True


def path_of(uri: str) -> Path:
    return Path(urlsplit(uri).path)


class LocalArtifacts:
    """Folders of this machine, kept beside the exports because a trainer keeps only its newest."""

    def fetch(self, uri: str, content_sha256: Sha256) -> Path:
        folder = path_of(uri)
        if not folder.exists() or manifest_of(folder).content_sha256 != content_sha256:
            raise RejectedError(f"expected {content_sha256} in {folder}", reason="base_unavailable")
        return folder


def events_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def as_it_is(batch: Batch) -> Batch:
    return batch


def killer(point: str | None, count: int) -> Callable[[str], None]:
    """Die by SIGKILL when a point is passed for the `count`-th time."""
    left = [count]

    def passed(name: str) -> None:
        if name == point:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return passed


def go_on(
    ranks: Ranks,
    folder: Path,
    model: Path,
    num_batches: int,
    kill: tuple[str | None, int] = (None, 0),
    changes: dict[str, Any] | None = None,
    bases: dict[int, int] | None = None,
    alter: Alter = as_it_is,
) -> None:
    """Run a trainer in `folder` until `num_batches` are settled."""
    blueprint = a_blueprint(model, **(changes or {}))
    checkpoints = Checkpoints(folder, ranks)
    state = checkpoints.read_pointer() or first_state(SCENARIO, offset=0, threads=1, ranks=ranks.size)
    log = FileLog(folder, model, offset=state.offset, num_batches=num_batches, bases=bases or {}, alter=alter)
    run_trainer(ranks, folder, blueprint, checkpoints, log, state, kill)


SCENARIO = ScenarioName("tiny")


def run_trainer(
    ranks: Ranks,
    folder: Path,
    blueprint: Blueprint,
    checkpoints: Checkpoints,
    log: FileLog,
    state: State,
    kill: tuple[str | None, int],
) -> None:
    learner = build(blueprint, ranks)
    bases = Bases(
        checkpoints=checkpoints,
        artifacts=LocalArtifacts(),
        ranks=ranks,
        lora=blueprint.lora,
        untrained=untrained_of(learner, blueprint.lora),
    )
    trainer = Trainer(
        scenario=SCENARIO,
        recipe="recipes.sao.recipe:SAORecipe",
        ranks=ranks,
        build=lambda: build(blueprint, ranks),
        bases=bases,
        checkpoints=checkpoints,
        exports=Exports(folder, ranks, model_folder=blueprint.model_folder, lora=blueprint.lora),
        log=log,
        limits=StepLimits(pack_tokens_max=64, gradient_norm_max=1.0),
        num_newest=2,
        now_us=lambda: 1,
        is_stopping=lambda: log.is_over,
        observe=lambda event: None,
        passed=killer(*kill),
    )
    run(trainer, learner, state)


def facts(events: Sequence[dict[str, Any]]) -> list[tuple[int, str, str]]:
    """What must be the same in every history: order, candidate and bytes; repeats once."""
    found = [
        (event["batch_seq"], event.get("candidate_id", event["batch_id"]), event.get("manifest_sha256", ""))
        for event in events
    ]
    return list(dict.fromkeys(found))


def renamed(batch: Batch, release: str) -> Batch:
    return replace(batch, sealed=replace(batch.sealed, base_release_id=ReleaseId(release)))
