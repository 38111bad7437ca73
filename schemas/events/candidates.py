"""Pure: what trainers made of batches, as events of `reef.candidates.v1`.

Next: release/loop.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas.ids import BatchId, CandidateId, ReleaseId, ScenarioName, Sha256


class ArtifactKind(StrEnum):
    """What a release consists of."""

    UNSPECIFIED = "unspecified"
    """Written by a newer writer than the reader knows."""
    CHECKPOINT = "checkpoint"
    """Full weights."""
    LORA = "lora"
    """A low-rank adapter in PEFT's format."""
    HARNESS = "harness"
    """A tree of files that an agent runs with."""
    ROUTING = "routing"
    """A policy that chooses among models."""


class OptimizerState(StrEnum):
    """Where the optimizer state of a step came from (WEIGHTS: base release change)."""

    UNSPECIFIED = "unspecified"
    """Written by a newer trainer than the reader knows."""
    KEPT = "kept"
    """The trainer held the base already."""
    RESTORED = "restored"
    """A kept checkpoint of the base's content was loaded."""
    FRESH = "fresh"
    """The base was loaded from its release, the actor's optimizer started anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateTrained:
    """A batch became weights that may be released."""

    candidate_id: CandidateId
    """Derived from the batch: the same batch gives the same candidate."""
    scenario: ScenarioName
    """The record's key."""
    batch_id: BatchId
    """The batch trained."""
    batch_seq: int
    """Its number."""
    kind: ArtifactKind
    """What was exported."""
    base_release_id: ReleaseId
    """The release that the step started from."""
    artifact_uri: str
    """Folder of the export."""
    manifest_sha256: Sha256
    """Of the export's `manifest.json`."""
    step: int
    """Optimizer steps of the actor so far."""
    metrics: Mapping[str, float]
    """Of this step; undefined ones are left out."""
    optimizer: OptimizerState
    """Where the optimizer state came from."""
    is_publishable: bool
    """False for warm-up steps, which publish nothing."""
    trained_at_us: int
    """Microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFailed:
    """A batch could not be trained; the weights are as before it."""

    batch_id: BatchId
    """The batch."""
    scenario: ScenarioName
    """The record's key."""
    reason: str
    """`non_finite`, `out_of_memory`, `base_unavailable`, `abandoned`: one word for machines."""
    detail: str
    """What was expected, what came, what to do."""
    failed_at_us: int
    """Microseconds UTC."""
