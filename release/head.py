"""Pure: `HEAD.json`, what a release says of itself, and the events that every release leads to.

It names where the files are, so a rollback and release 0 add no bytes. No two attempts write the same bytes:
two publishers on one parent always conflict here, and this conflict is the chain's compare-and-swap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.errors import RejectedError
from schemas.events import (
    ArtifactKind,
    CandidateEvaluated,
    Operation,
    ReleasePublished,
    SwapRequested,
    Verdict,
)
from schemas.ids import BatchId, CandidateId, CommandId, ReleaseId, ScenarioName, Sha256, SwapId, derived_id
from schemas.kinds import slot_of
from schemas.manifest import SHA256_PATTERN

HEAD_NAME = "HEAD.json"
VERSION = 1
ReleaseEvent = CandidateEvaluated | ReleasePublished | SwapRequested


class Head(BaseModel):
    """What is published, on what, by which attempt."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = Field(VERSION, ge=1, le=VERSION)
    scenario: ScenarioName
    release_seq: int = Field(ge=0)
    operation: Operation
    parent_release_id: ReleaseId | None = Field(description="the head before; none for release 0")
    kind: ArtifactKind
    content_sha256: Sha256 = Field(pattern=SHA256_PATTERN)
    artifact_uri: str | None = Field(description="where the files are; none: in this very commit")
    candidate_id: CandidateId | None
    batch_ids: tuple[BatchId, ...]
    rollback_target_release_id: ReleaseId | None = None
    command_id: CommandId | None = Field(None, description="the operator's command that asked for it")
    tokenizer_digest: Sha256 = Field(pattern=SHA256_PATTERN)
    attempt: str = Field(min_length=1, description="differs between any two attempts")

    def encode(self) -> bytes:
        """Give the bytes of `HEAD.json`: canonical JSON (RFC 8785)."""
        return rfc8785.dumps(self.model_dump(mode="json"))


def decode_head(data: bytes) -> Head:
    """Read `HEAD.json`. Raises RejectedError."""
    try:
        return Head.model_validate_json(data)
    except ValidationError as error:
        raise RejectedError(
            f"expected {HEAD_NAME} of version {VERSION}, got {error.error_count()} problem(s): who else "
            "writes here?",
            reason="bad_head",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What the evaluation measured, kept with the merge, so that a worker that dies does not lose it."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the candidate."""
    baseline_metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the release it would replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One link of the chain, as it stands on `main`."""

    release_id: ReleaseId
    """Commit of the merge."""
    head: Head
    """What it says of itself."""
    published_at_us: int
    """When it was merged; microseconds UTC."""
    evaluated: Evaluated = field(default_factory=Evaluated)
    """Of a training release."""

    @property
    def seq(self) -> int:
        """Its number."""
        return self.head.release_seq

    @property
    def artifact_uri(self) -> str:
        """Where its files are."""
        return self.head.artifact_uri or commit_uri(self.head.scenario, self.release_id)


def incumbent_of(releases: Sequence[Release], kind: ArtifactKind) -> Release:
    """Give the release that one of this kind would replace; the base model where it would be the first."""
    in_slot = (release for release in reversed(releases) if slot_of(release.head.kind) is slot_of(kind))
    return next(in_slot, releases[0])


def repository_of(scenario: ScenarioName) -> str:
    """Name a scenario's repository."""
    return f"reef-{scenario}"


def commit_uri(scenario: ScenarioName, commit_id: str) -> str:
    """Name the files of a commit."""
    return f"lakefs://{repository_of(scenario)}/{commit_id}/"


def commit_in(uri: str) -> str | None:
    """Give the commit that `commit_uri` named; None for the base model, which is no commit."""
    return uri.rstrip("/").rsplit("/", 1)[-1] if uri.startswith("lakefs://") else None


def tag_of(seq: int) -> str:
    """Name a release's tag."""
    return f"rel-{seq:06d}"


def events_of(release: Release) -> tuple[ReleaseEvent, ...]:
    """Give the events of a release, the same at every call. Release 0 needs no swap (RULINGS 23)."""
    published = (release_published(release),)
    match release.head.operation:
        case Operation.CREATION:
            return published
        case Operation.TRAINING:
            return (candidate_accepted(release), *published, swap_requested(release))
        case _:
            return (*published, swap_requested(release))


def release_published(release: Release) -> ReleasePublished:
    """State that a release is the head."""
    head = release.head
    return ReleasePublished(
        release_id=release.release_id,
        scenario=head.scenario,
        release_seq=head.release_seq,
        operation=head.operation,
        parent_release_id=head.parent_release_id,
        content_sha256=head.content_sha256,
        artifact_uri=release.artifact_uri,
        kind=head.kind,
        candidate_id=head.candidate_id,
        batch_ids=head.batch_ids,
        rollback_target_release_id=head.rollback_target_release_id,
        command_id=head.command_id,
        tokenizer_digest=head.tokenizer_digest,
        published_at_us=release.published_at_us,
    )


def swap_requested(release: Release) -> SwapRequested:
    """Ask for a release to be served."""
    return SwapRequested(
        swap_id=SwapId(derived_id("swap", release.release_id)),
        scenario=release.head.scenario,
        swap_seq=release.head.release_seq,
        release_id=release.release_id,
        release_seq=release.head.release_seq,
        kind=release.head.kind,
        artifact_uri=release.artifact_uri,
        content_sha256=release.head.content_sha256,
        requested_at_us=release.published_at_us,
    )


def candidate_accepted(release: Release) -> CandidateEvaluated:
    """State that a candidate was published."""
    assert release.head.candidate_id is not None, "training publishes candidates"
    return CandidateEvaluated(
        candidate_id=release.head.candidate_id,
        scenario=release.head.scenario,
        batch_ids=release.head.batch_ids,
        verdict=Verdict.ACCEPTED,
        reasons=(),
        metrics=release.evaluated.metrics,
        baseline_metrics=release.evaluated.baseline_metrics,
        evaluated_at_us=release.published_at_us,
    )
