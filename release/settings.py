"""Shell: the narrow pieces of the configuration that the release service takes.

Not the configuration itself: schemas/settings has its keys, and how files are read.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from release.base_model import BaseModel
from release.evaluation import Publish
from release.repository import LakefsLimits
from schemas.artifact_fetch import LakefsAccess
from schemas.blobs import BlobStore
from schemas.bus import KafkaAccess
from schemas.errors import RejectedError
from schemas.recipe import load_recipe
from schemas.settings import EvaluationSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLimits:
    """What the service does at most, and how long it waits."""

    wait_s: float = 1.0
    """For news."""
    reconcile_s: float = 60.0
    """Between two looks at the whole chain."""
    retry_s: float = 1.0
    """Longest rest after the first failure; it doubles."""
    retry_s_max: float = 30.0
    """Up to this."""
    disk_retry_s: float = 15.0
    """Between two looks at a full disk."""
    command_tries_max: int = 20
    """Heads that a command may lose to others."""
    command_age_s_max: float = 60 * 24 * 3600.0
    """An older command's refusal may be gone from the log, so it is never acted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSettings:
    """Everything that a release service is told."""

    kafka: KafkaAccess
    """The log."""
    blobs: BlobStore
    """Fields that are too large for it."""
    lakefs: LakefsAccess
    """The chains."""
    storage_namespace: str
    """Where new repositories keep objects."""
    state_dir: Path
    """The deployment's state folder; its disk is what fills up."""
    base: BaseModel
    """What release 0 of new scenarios names."""
    evaluation: EvaluationSettings
    """The gate between a candidate and its release."""
    metrics_port: int
    """Of /metrics."""
    live_engine: str | None = None
    """The engine that serves; adapters are evaluated there when there is no spare one."""
    limits: ReleaseLimits = field(default_factory=ReleaseLimits)
    """Of this service."""
    lakefs_limits: LakefsLimits = field(default_factory=LakefsLimits)
    """Of lakeFS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationChoice:
    """How one scenario's candidates are evaluated."""

    module: str
    """A built-in evaluator or a dotted path."""
    config: Mapping[str, Any]
    """What it is told."""
    publish: Publish
    """Whether an operator decides."""
    device: Literal["cpu", "cuda"]
    """Where a child computes."""
    engine: str | None
    """Address of an engine where adapters can be loaded beside what it serves."""
    timeout_s: float
    """Longest time for one evaluation."""


def evaluation_choice(
    evaluation: EvaluationSettings, recipe_path: str, *, live_engine: str | None = None
) -> EvaluationChoice:
    """Choose the configured evaluator, or else the recipe's own. Raises RejectedError."""
    given: Mapping[str, Any] = (
        load_recipe(recipe_path).evaluation
        if evaluation.module is None
        else {"module": evaluation.module, "config": {}}
    )
    module = given.get("module")
    if not isinstance(module, str):
        raise RejectedError(
            f"expected `evaluation` of {recipe_path} to name a module, got {module!r}: set evaluation.module",
            reason="configuration",
        )
    return EvaluationChoice(
        module=module,
        config={**given.get("config", {}), **evaluation.config},
        publish=evaluation.publish,
        device=evaluation.device,
        engine=evaluation.engine or live_engine,
        timeout_s=evaluation.timeout_s,
    )


def child_environment() -> dict[str, str]:
    """Give an evaluation's process our environment, and keep it off the network's hubs."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
