"""Pure: releases, candidates and facts of the tests, with whatever a test names changed."""

from collections.abc import Mapping
from typing import Any

from release.drafts import Draft, next_head
from release.gate import Facts, Shape, TensorFacts
from release.head import Release
from schemas.events import ArtifactKind, CandidateTrained, Operation
from schemas.ids import BatchId, CandidateId, ReleaseId, Sha256, derived_id
from schemas.manifest import Manifest, ManifestFile, manifest_sha256
from tests.builders import SCENARIO, SHA256, a_candidate_trained

BASE: Mapping[str, Shape] = {"model.a.weight": (4, 8), "model.b.weight": (3,)}
BASE_URI = "file:///models/base/"


def a_draft(**changes: Any) -> Draft:
    """Draft a candidate's publication."""
    fields: dict[str, Any] = {
        "scenario": SCENARIO,
        "operation": Operation.TRAINING,
        "kind": ArtifactKind.CHECKPOINT,
        "content_sha256": SHA256,
        "artifact_uri": None,
        "tokenizer_digest": SHA256,
        "candidate_id": CandidateId(derived_id("candidate", "1")),
        "batch_ids": (BatchId(derived_id("batch", "1")),),
    }
    return Draft(**(fields | changes))


def content(number: int) -> Sha256:
    """Name content `number`."""
    return Sha256(f"{number:064x}")


def published(releases: list[Release], draft: Draft) -> Release:
    """Put a draft behind a chain, as the store would."""
    head = next_head(draft, releases, f"attempt-{len(releases)}")
    commit = ReleaseId(derived_id("commit", str(len(releases)), head.attempt).replace("-", "") * 2)
    return Release(release_id=commit, head=head, published_at_us=1_000 + len(releases))


def a_chain(length: int = 2) -> list[Release]:
    """Build a chain: the base model, then candidates."""
    base = a_draft(
        operation=Operation.CREATION,
        candidate_id=None,
        batch_ids=(),
        artifact_uri=BASE_URI,
        content_sha256=content(0),
    )
    releases = [published([], base)]
    for number in range(1, length):
        candidate_id = CandidateId(derived_id("candidate", str(number)))
        draft = a_draft(candidate_id=candidate_id, content_sha256=content(number))
        releases.append(published(releases, draft))
    return releases


def a_manifest(candidate: CandidateTrained, *paths: str, **changes: Any) -> Manifest:
    """Describe a candidate's files."""
    fields: dict[str, Any] = {
        "kind": candidate.kind,
        "files": tuple(ManifestFile(path=path, sha256=SHA256, size=10) for path in paths),
        "base_release_id": candidate.base_release_id,
        "batch_ids": (candidate.batch_id,),
    }
    return Manifest(**(fields | changes))


def a_good_candidate(**changes: Any) -> CandidateTrained:
    """Build a candidate of full weights whose manifest is what `good_facts` shows."""
    candidate = a_candidate_trained(**({"kind": ArtifactKind.CHECKPOINT} | changes))
    digest = manifest_sha256(a_manifest(candidate, "model.safetensors").encode())
    return a_candidate_trained(**({"kind": ArtifactKind.CHECKPOINT, "manifest_sha256": digest} | changes))


def tensors_of(
    shapes: Mapping[str, Shape], *, unfinite: frozenset[str] = frozenset()
) -> dict[str, TensorFacts]:
    """Give the facts of tensors with these shapes."""
    return {name: TensorFacts(shape=shape, is_finite=name not in unfinite) for name, shape in shapes.items()}


def good_facts(candidate: CandidateTrained, **changes: Any) -> Facts:
    """Show what a good candidate's folder holds."""
    manifest = a_manifest(candidate, "model.safetensors")
    fields: dict[str, Any] = {
        "manifest": manifest,
        "manifest_sha256": candidate.manifest_sha256,
        "files": {file.path: file for file in manifest.files},
        "tensors": tensors_of(BASE),
    }
    return Facts(**(fields | changes))
