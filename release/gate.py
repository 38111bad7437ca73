"""Pure: the gate: what is wrong with a candidate, from facts about its files; nothing wrong lets it pass.

Not the finding of the facts (release/inspection.py), nor whether it is any good (release/evaluate.py).

Next: release/evaluate.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from release.head import Release
from schemas.events import ArtifactKind, CandidateTrained, VerdictReason
from schemas.ids import Sha256
from schemas.kinds import slot_of
from schemas.manifest import Manifest, ManifestFile

Shape = tuple[int, ...]
LORA_PREFIX = "base_model.model."
LORA_A, LORA_B = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """What the gate asks about a tensor."""

    shape: Shape
    """Its sizes."""
    is_finite: bool
    """Whether it holds neither NaN nor infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A candidate as its folder shows it."""

    manifest: Manifest | None
    """None when there is none, or it cannot be read."""
    manifest_sha256: Sha256 | None
    """Of its bytes; None when there are none."""
    manifest_bytes: bytes = b""
    """As they are."""
    files: Mapping[str, ManifestFile]
    """By path: what is really there of what the manifest names."""
    tensors: Mapping[str, TensorFacts]
    """Of all those files, by name."""


def judge_files(
    candidate: CandidateTrained, facts: Facts, base_shapes: Mapping[str, Shape]
) -> tuple[VerdictReason, ...]:
    """Say what is wrong with the files; the first kind of mistake makes the later ones meaningless."""
    if facts.manifest_sha256 is None:
        return (VerdictReason.MISSING_FILE,)
    manifest = facts.manifest
    if manifest is None or not _is_announced(candidate, facts.manifest_sha256, manifest):
        return (VerdictReason.MANIFEST_MISMATCH,)
    damaged = _damage(manifest, facts.files)
    if damaged or manifest.kind not in _JUDGES:
        return damaged or (() if manifest.files else (VerdictReason.EMPTY,))
    if not facts.tensors:
        return (VerdictReason.EMPTY,)
    shapes = {name: tensor.shape for name, tensor in facts.tensors.items()}
    found = _JUDGES[manifest.kind](shapes, base_shapes)
    if not all(tensor.is_finite for tensor in facts.tensors.values()):
        found = (*found, VerdictReason.NON_FINITE)
    return found


def judge_base(candidate: CandidateTrained, releases: Sequence[Release]) -> tuple[VerdictReason, ...]:
    """Say whether a candidate may follow: nothing may have taken its slot since its base (RULINGS 27)."""
    ids = [release.release_id for release in releases]
    if candidate.base_release_id not in ids:
        return (VerdictReason.FOREIGN_BASE,)
    since = releases[ids.index(candidate.base_release_id) + 1 :]
    is_superseded = any(slot_of(release.head.kind) is slot_of(candidate.kind) for release in since)
    return (VerdictReason.BASE_SUPERSEDED,) if is_superseded else ()


def _is_announced(candidate: CandidateTrained, digest: Sha256, manifest: Manifest) -> bool:
    return (
        digest == candidate.manifest_sha256
        and manifest.kind is candidate.kind
        and manifest.base_release_id in (None, candidate.base_release_id)
        and candidate.batch_id in (manifest.batch_ids or (candidate.batch_id,))
    )


def _damage(manifest: Manifest, found: Mapping[str, ManifestFile]) -> tuple[VerdictReason, ...]:
    missing = any(file.path not in found for file in manifest.files)
    others = any(file.path in found and found[file.path] != file for file in manifest.files)
    return (VerdictReason.MISSING_FILE,) * missing + (VerdictReason.DIGEST_MISMATCH,) * others


def _judge_weights(shapes: Mapping[str, Shape], base: Mapping[str, Shape]) -> tuple[VerdictReason, ...]:
    """Full weights have the base's names and shapes."""
    if shapes.keys() != base.keys():
        return (VerdictReason.NAME_MISMATCH,)
    return () if shapes == base else (VerdictReason.SHAPE_MISMATCH,)


def _judge_adapter(shapes: Mapping[str, Shape], base: Mapping[str, Shape]) -> tuple[VerdictReason, ...]:
    """An adapter is pairs A `[rank, in]` and B `[out, rank]` beside weights `[out, in]` of the base."""
    targets = {name.removesuffix(LORA_A).removesuffix(LORA_B) for name in shapes}
    expected = {target + end for target in targets for end in (LORA_A, LORA_B)}
    weights = {target: base.get(target.removeprefix(LORA_PREFIX) + ".weight") for target in targets}
    if shapes.keys() != expected or None in weights.values():
        return (VerdictReason.NAME_MISMATCH,)
    fits = all(_fits(shapes[t + LORA_A], shapes[t + LORA_B], weights[t]) for t in targets)
    return () if fits else (VerdictReason.SHAPE_MISMATCH,)


def _fits(a: Shape, b: Shape, weight: Shape | None) -> bool:
    return len(a) == len(b) == 2 and a[0] == b[1] and (b[0], a[1]) == weight


_JUDGES = {ArtifactKind.CHECKPOINT: _judge_weights, ArtifactKind.LORA: _judge_adapter}
"""Kinds that consist of tensors."""
