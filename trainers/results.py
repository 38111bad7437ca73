"""Pure: how a batch ended: what the pointer keeps of it, and the event that it becomes."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite

from schemas.events import ArtifactKind, BatchSealed, CandidateTrained, OptimizerState, TrainingFailed
from schemas.ids import ScenarioName, Sha256
from trainers.state import Failed, Kept, Trained, candidate_id_of

DETAIL_CHARS_MAX = 2_000
NO_MANIFEST = Sha256(sha256(b"").hexdigest())
"""A warm-up exports nothing: the digest of nothing, beside the base's own folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An artifact as it stands in its folder."""

    uri: str
    """The folder."""
    manifest_sha256: Sha256
    """Of its manifest's bytes."""
    content_sha256: Sha256
    """Of its files."""


def trained_of(
    sealed: BatchSealed,
    *,
    kind: ArtifactKind,
    step: int,
    metrics: Mapping[str, float],
    optimizer: OptimizerState,
    is_publishable: bool,
    at_us: int,
) -> Trained:
    """Keep what a step made of a batch; metrics that are not finite are left out."""
    return Trained(
        candidate_id=candidate_id_of(sealed.batch_id),
        batch_id=sealed.batch_id,
        batch_seq=sealed.batch_seq,
        kind=kind,
        base_release_id=sealed.base_release_id,
        base_artifact_uri=sealed.base_artifact_uri,
        base_content_sha256=sealed.base_content_sha256,
        recipe=sealed.recipe,
        recipe_digest=sealed.recipe_digest,
        step=step,
        metrics={name: value for name, value in sorted(metrics.items()) if isfinite(value)},
        optimizer=optimizer,
        is_publishable=is_publishable,
        trained_at_us=at_us,
    )


def failed_of(sealed: BatchSealed, *, reason: str, detail: str, at_us: int) -> Failed:
    """Keep why a batch was not trained."""
    return Failed(
        batch_id=sealed.batch_id, reason=reason, detail=detail[:DETAIL_CHARS_MAX], failed_at_us=at_us
    )


def kept_of(result: Trained) -> Kept:
    """Name the tensors of a result. A warm-up's policy is its base; others get their name by their export."""
    return Kept(
        folder=f"{result.batch_seq:08d}-{result.batch_id}",
        content_sha256=None if result.is_publishable else result.base_content_sha256,
        step=result.step,
    )


def candidate_of(scenario: ScenarioName, result: Trained, exported: Exported | None) -> CandidateTrained:
    """State that a batch was trained."""
    return CandidateTrained(
        candidate_id=result.candidate_id,
        scenario=scenario,
        batch_id=result.batch_id,
        batch_seq=result.batch_seq,
        kind=result.kind,
        base_release_id=result.base_release_id,
        artifact_uri=exported.uri if exported else result.base_artifact_uri,
        manifest_sha256=exported.manifest_sha256 if exported else NO_MANIFEST,
        step=result.step,
        metrics=result.metrics,
        optimizer=result.optimizer,
        is_publishable=result.is_publishable,
        trained_at_us=result.trained_at_us,
    )


def failure_of(scenario: ScenarioName, result: Failed) -> TrainingFailed:
    """State that a batch could not be trained."""
    return TrainingFailed(
        batch_id=result.batch_id,
        scenario=scenario,
        reason=result.reason,
        detail=result.detail,
        failed_at_us=result.failed_at_us,
    )
