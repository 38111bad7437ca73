"""Pure: what each operation publishes: the next link of the chain, before it has an attempt's name.

Not the decision whether it may.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from release.head import Head, Release
from schemas.events import ArtifactKind, CandidateTrained, Operation, PromoteCandidate, RollBackRelease
from schemas.ids import BatchId, CandidateId, CommandId, ReleaseId, ScenarioName, Sha256, derived_id
from schemas.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A publication, wherever in the chain it may come to stand."""

    scenario: ScenarioName
    """Whose chain."""
    operation: Operation
    """Why."""
    kind: ArtifactKind
    """What it consists of."""
    content_sha256: Sha256
    """Its content."""
    artifact_uri: str | None
    """Where its files are; None when it brings them."""
    tokenizer_digest: Sha256
    """Of the model's tokenizer."""
    candidate_id: CandidateId | None = None
    """The candidate of its content."""
    batch_ids: tuple[BatchId, ...] = ()
    """The batches behind it."""
    rollback_target_release_id: ReleaseId | None = None
    """Set on rollbacks."""
    command_id: CommandId | None = None
    """The command that asked for it."""

    @property
    def branch_prefix(self) -> str:
        """How the branches of all its attempts begin."""
        return branch_prefix(self.operation, self.command_id or self.candidate_id or "")


def branch_prefix(operation: Operation, cause: str) -> str:
    """Name branches after what caused them; a command's id may hold anything, so it is digested."""
    if operation in (Operation.ROLLBACK, Operation.PROMOTE):
        cause = derived_id("command", cause)
    return f"{operation}-{cause}-" if cause else f"{operation}-"


def creation(
    scenario: ScenarioName, manifest: Manifest, *, artifact_uri: str, tokenizer_digest: Sha256
) -> Draft:
    """Release 0: the base model where it is."""
    return Draft(
        scenario=scenario,
        operation=Operation.CREATION,
        kind=manifest.kind,
        content_sha256=manifest.content_sha256,
        artifact_uri=artifact_uri,
        tokenizer_digest=tokenizer_digest,
    )


def training(candidate: CandidateTrained, manifest: Manifest, parent: Release) -> Draft:
    """A candidate on the release that it was trained from."""
    return Draft(
        scenario=candidate.scenario,
        operation=Operation.TRAINING,
        kind=manifest.kind,
        content_sha256=manifest.content_sha256,
        artifact_uri=None,
        tokenizer_digest=parent.head.tokenizer_digest,
        candidate_id=candidate.candidate_id,
        batch_ids=manifest.batch_ids or (candidate.batch_id,),
    )


def rollback(command: RollBackRelease, target: Release) -> Draft:
    """An older release's content, again."""
    return Draft(
        scenario=command.scenario,
        operation=Operation.ROLLBACK,
        kind=target.head.kind,
        content_sha256=target.head.content_sha256,
        artifact_uri=target.artifact_uri,
        tokenizer_digest=target.head.tokenizer_digest,
        candidate_id=target.head.candidate_id,
        batch_ids=target.head.batch_ids,
        rollback_target_release_id=target.release_id,
        command_id=command.command_id,
    )


def promote(command: PromoteCandidate, held: Head, *, artifact_uri: str) -> Draft:
    """A held candidate's content, from the branch where it waits."""
    return Draft(
        scenario=command.scenario,
        operation=Operation.PROMOTE,
        kind=held.kind,
        content_sha256=held.content_sha256,
        artifact_uri=artifact_uri,
        tokenizer_digest=held.tokenizer_digest,
        candidate_id=held.candidate_id,
        batch_ids=held.batch_ids,
        command_id=command.command_id,
    )


def next_head(draft: Draft, releases: Sequence[Release], attempt: str) -> Head:
    """Put a draft behind the newest release."""
    return Head(
        scenario=draft.scenario,
        release_seq=len(releases),
        operation=draft.operation,
        parent_release_id=releases[-1].release_id if releases else None,
        kind=draft.kind,
        content_sha256=draft.content_sha256,
        artifact_uri=draft.artifact_uri,
        candidate_id=draft.candidate_id,
        batch_ids=draft.batch_ids,
        rollback_target_release_id=draft.rollback_target_release_id,
        command_id=draft.command_id,
        tokenizer_digest=draft.tokenizer_digest,
        attempt=attempt,
    )
