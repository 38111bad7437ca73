"""Shell: the narrow pieces of the configuration that a trainer takes, and which rank this process is.

Not the configuration itself: schemas/settings has its keys, and how files are read.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.artifact_fetch import ARTIFACTS_FOLDER, LakefsAccess
from schemas.bus import KafkaAccess
from schemas.events import TrainingTarget
from schemas.settings import TrainingSettings
from schemas.settings.scenarios import Scenario
from trainers.model import Lora

TRAINER_FOLDER = "trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A replay to learn from."""

    topic: str
    """Its training topic."""
    folder: Path
    """Where pointer, checkpoints, exports and results go: a live trainer's folder is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSettings:
    """Everything that one scenario's trainer is told."""

    scenario: Scenario
    """Whose batches, and how they are learned from."""
    training: TrainingSettings
    """Rates and limits."""
    model_folder: Path
    """The base model, complete."""
    state_dir: Path
    """The deployment's state folder, which all ranks see."""
    kafka: KafkaAccess
    """The log."""
    blobs_url: str
    """Fields too large for it."""
    lakefs: LakefsAccess | None
    """Where releases are."""
    metrics_port: int
    """Of rank 0."""
    replay: Replay | None = None
    """Learn from a replay instead of the live log."""

    @property
    def folder(self) -> Path:
        """Where this trainer keeps pointer, checkpoints and exports."""
        if self.replay is not None:
            return self.replay.folder
        return self.state_dir / TRAINER_FOLDER / self.scenario.name

    @property
    def artifacts_folder(self) -> Path:
        """Where fetched releases are; a replay leaves what live services share alone."""
        shared = self.state_dir if self.replay is None else self.replay.folder
        return shared / ARTIFACTS_FOLDER

    @property
    def lora(self) -> Lora | None:
        """The adapter to train, if one is."""
        if self.scenario.target is not TrainingTarget.LORA:
            return None
        return Lora(rank=self.training.lora_rank, alpha=self.training.lora_alpha)


class RankFacts(BaseSettings):
    """Which rank this process is, in torchrun's words; without them it is the one that starts the others."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    rank: int | None = Field(None, ge=0, validation_alias="RANK")
    local_rank: int = Field(0, ge=0, validation_alias="LOCAL_RANK")
    world_size: int = Field(1, ge=1, validation_alias="WORLD_SIZE")
    master_addr: str = Field("127.0.0.1", validation_alias="MASTER_ADDR")
    master_port: int = Field(0, ge=0, validation_alias="MASTER_PORT")

    @property
    def rendezvous(self) -> str:
        """Where the ranks meet."""
        return f"tcp://{self.master_addr}:{self.master_port}"


def read_rank_facts() -> RankFacts:
    """Read which rank this process is."""
    return RankFacts()


def rank_environment(facts: RankFacts) -> dict[str, str]:
    """Give a child our environment, and tell it which rank it is."""
    return {
        **os.environ,
        "RANK": str(facts.rank),
        "LOCAL_RANK": str(facts.local_rank),
        "WORLD_SIZE": str(facts.world_size),
        "MASTER_ADDR": facts.master_addr,
        "MASTER_PORT": str(facts.master_port),
    }


def device_for(training: TrainingSettings, local_rank: int) -> torch.device:
    """Choose where a rank computes."""
    has_cuda = torch.cuda.is_available()
    if training.device == "cuda" and not has_cuda:
        raise ValueError("expected a CUDA device for training.device: cuda, got none: set it to auto or cpu")
    if training.device == "cpu" or not has_cuda:
        return torch.device("cpu")
    return torch.device("cuda", local_rank)


def threads_for(training: TrainingSettings, stored: int | None) -> int:
    """Choose a rank's threads: as told, as ever, or a fair share of the cores."""
    cores = len(os.sched_getaffinity(0))
    return training.threads or stored or max(1, cores // training.ranks)
