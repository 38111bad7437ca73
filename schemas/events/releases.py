"""Pure: the chain of releases, as events of `reef.releases.v1`.

Next: gateway/swap.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas.events.candidates import ArtifactKind
from schemas.ids import BatchId, CandidateId, CommandId, ReleaseId, ScenarioName, Sha256, SwapId


class Operation(StrEnum):
    """Why a release was published."""

    UNSPECIFIED = "unspecified"
    """Written by a newer release service than the reader knows."""
    CREATION = "creation"
    """Release 0: the base model."""
    TRAINING = "training"
    """A candidate passed its evaluation."""
    ROLLBACK = "rollback"
    """An operator brought older content back."""
    PROMOTE = "promote"
    """An operator published a held candidate."""


class Verdict(StrEnum):
    """What the evaluation said of a candidate."""

    UNSPECIFIED = "unspecified"
    """Written by a newer release service than the reader knows."""
    ACCEPTED = "accepted"
    """It was published."""
    REJECTED = "rejected"
    """It is never published by itself; its files stay on its branch."""
    HELD = "held"
    """It waits for an operator."""


class VerdictReason(StrEnum):
    """Why a candidate was not accepted."""

    UNSPECIFIED = "unspecified"
    """Written by a newer release service than the reader knows."""
    MISSING_FILE = "missing_file"
    """The manifest names a file that is not there."""
    DIGEST_MISMATCH = "digest_mismatch"
    """A file is not what the manifest says."""
    MANIFEST_MISMATCH = "manifest_mismatch"
    """The manifest is not the one that the trainer announced."""
    NON_FINITE = "non_finite"
    """A tensor holds NaN or infinity."""
    EMPTY = "empty"
    """There are no tensors."""
    NAME_MISMATCH = "name_mismatch"
    """Tensor names differ from the base's."""
    SHAPE_MISMATCH = "shape_mismatch"
    """Tensor shapes differ from the base's."""
    FOREIGN_BASE = "foreign_base"
    """Its base is not in this chain."""
    BASE_SUPERSEDED = "base_superseded"
    """The head moved since its batch was sealed."""
    METRIC_OUT_OF_BOUNDS = "metric_out_of_bounds"
    """A training metric left its limits."""
    WORSE_THAN_INCUMBENT = "worse_than_incumbent"
    """It scored below the release it would replace."""
    EVALUATOR_FAILED = "evaluator_failed"
    """The evaluator itself raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateEvaluated:
    """The verdict on a candidate, written once its merge succeeded or was refused."""

    candidate_id: CandidateId
    """The candidate."""
    scenario: ScenarioName
    """The record's key."""
    batch_ids: tuple[BatchId, ...]
    """The batches behind it."""
    verdict: Verdict
    """What became of it."""
    reasons: tuple[VerdictReason, ...]
    """Empty when accepted."""
    metrics: Mapping[str, float]
    """Of the candidate."""
    baseline_metrics: Mapping[str, float]
    """Of the release it would replace."""
    evaluated_at_us: int
    """Microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePublished:
    """A new head of the chain."""

    release_id: ReleaseId
    """Commit of the merge on `main`."""
    scenario: ScenarioName
    """The record's key."""
    release_seq: int
    """0, 1, 2 … within the scenario."""
    operation: Operation
    """Why it was published."""
    parent_release_id: ReleaseId | None
    """The head before; None for release 0."""
    content_sha256: Sha256
    """Of the canonical JSON of its sorted file list: equal bytes, equal content."""
    artifact_uri: str
    """Where its files are; a rollback names the older commit's."""
    kind: ArtifactKind
    """What it consists of."""
    candidate_id: CandidateId | None
    """The candidate of its content; None for the base model."""
    batch_ids: tuple[BatchId, ...]
    """The batches behind the candidate."""
    rollback_target_release_id: ReleaseId | None
    """Set on rollbacks only."""
    command_id: CommandId | None
    """The operator's command that asked for it; None for training, release 0, and what version 1 wrote."""
    tokenizer_digest: Sha256
    """Of the model's tokenizer."""
    published_at_us: int
    """Microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapRequested:
    """Engines of this scenario are to serve this release. The newest request wins."""

    swap_id: SwapId
    """Derived from the release."""
    scenario: ScenarioName
    """The record's key."""
    swap_seq: int
    """Grows within the scenario."""
    release_id: ReleaseId
    """The release to serve."""
    release_seq: int
    """Its place in the chain."""
    kind: ArtifactKind
    """How it is loaded."""
    artifact_uri: str
    """Where its files are."""
    content_sha256: Sha256
    """What they must be."""
    requested_at_us: int
    """Microseconds UTC."""
