"""Pure: which kinds of release take one another's place: weights that of weights, a harness a harness's.

One chain holds them all; what is the newest of one slot says nothing about the others.
"""

from schemas.events import ArtifactKind

WEIGHT_KINDS = frozenset({ArtifactKind.CHECKPOINT, ArtifactKind.LORA})
"""Kinds that consist of tensors and are loaded by engines."""


def is_weights(kind: ArtifactKind) -> bool:
    """Whether engines load it; a kind that this version does not know they do not."""
    return kind in WEIGHT_KINDS


def slot_of(kind: ArtifactKind) -> ArtifactKind:
    """Name the slot that a release fills by one of its kinds."""
    return ArtifactKind.CHECKPOINT if is_weights(kind) else kind
