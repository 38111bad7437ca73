"""Pure: what a scenario is to serve: the newest that was requested, and when to try again what failed.

Not the swap. A starting gateway serves the newest weights of the chain; afterwards the newest SwapRequested
wins.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.events import ArtifactKind
from schemas.ids import ReleaseId, ScenarioName, Sha256, SwapId, derived_id
from schemas.kinds import is_weights

RETRY_S_FIRST, RETRY_S_MAX = 5.0, 300.0
"""Bounds of the rest after a swap that failed (STREAMS 26)."""
DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Files that an engine can load."""

    kind: ArtifactKind
    """How they are loaded."""
    artifact_uri: str
    """Where they are."""
    content_sha256: Sha256
    """What they must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Content):
    """A release that is to be served."""

    swap_id: SwapId
    """The request; derived from the release, so that the head of a chain has one too."""
    scenario: ScenarioName
    """Whose."""
    release_id: ReleaseId
    """The release."""
    release_seq: int
    """Its place in the chain; requests count like it."""
    tokenizer_digest: Sha256
    """Of the model's tokenizer."""


@dataclass(slots=True, kw_only=True)
class Wish:
    """What a scenario is to serve, and how that went."""

    target: Target
    """The release."""
    num_failures: int = 0
    """In a row."""
    not_before_s: float = 0.0
    """When to try again, by the loop's clock."""
    told: ReleaseId | None = None
    """The release of the last ModelSwapped."""
    is_refused: bool = False
    """Whether it was said once that the engines cannot swap."""


def of_release(scenario: str, row: Mapping[str, Any]) -> Target:
    """Read a release of a chain, as the views show it."""
    return Target(
        swap_id=SwapId(derived_id("swap", row["release_id"])),
        scenario=ScenarioName(scenario),
        release_id=ReleaseId(row["release_id"]),
        release_seq=row["release_seq"],
        kind=ArtifactKind(row["kind"]),
        artifact_uri=row["artifact_uri"],
        content_sha256=Sha256(row["content_sha256"]),
        tokenizer_digest=Sha256(row["tokenizer_digest"]),
    )


def ahead_id(content_sha256: Sha256) -> SwapId:
    """Name the staging of a content that nobody has requested yet."""
    return SwapId(derived_id("ahead", content_sha256))


def weights_of(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Keep the releases of a chain that engines can hold, in their order."""
    return [row for row in rows if is_weights(ArtifactKind(row["kind"]))]


def newest(current: Target | None, offered: Target) -> Target:
    """Choose between what is wanted and what is requested: the later in the chain."""
    return offered if current is None or offered.release_seq > current.release_seq else current


def retry_delay_s(num_failures: int) -> float:
    """Say how long to rest after so many failures in a row."""
    return min(RETRY_S_MAX, RETRY_S_FIRST * 2.0 ** min(max(num_failures - 1, 0), DOUBLINGS_MAX))


def first_ranks(nums_workers: tuple[int, ...]) -> tuple[int, ...]:
    """Number the first worker of each engine in a transfer group whose sender is rank 0."""
    return tuple(1 + sum(nums_workers[:index]) for index in range(len(nums_workers)))


def adapter_name(target: Target) -> str:
    """Name an adapter as no other ever was."""
    return f"{target.scenario}--r{target.release_seq:06d}"
