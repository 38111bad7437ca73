"""Pure: the batches that trainers consume, as events of `reef.training.v1`.

A batch is its samples, then the seal: n `TrainingSample`, one `BatchSealed`, all in one transaction.

Next: trainers/loop.py
"""

from dataclasses import dataclass

from schemas.events.experience import ExperienceAssembled
from schemas.ids import BatchId, CandidateId, ExperienceId, ReleaseId, ScenarioName, Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One experience of a batch that is being sealed."""

    batch_id: BatchId
    """The batch."""
    scenario: ScenarioName
    """The record's key."""
    index: int
    """Place within the batch, from 0."""
    experience: ExperienceAssembled
    """As revised until the sealing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSealed:
    """A batch is complete and never changes again."""

    batch_id: BatchId
    """Derived from the scenario, the sequence number and the experiences."""
    scenario: ScenarioName
    """The record's key."""
    batch_seq: int
    """Counts the scenario's batches, from 0."""
    recipe: str
    """Dotted path of the recipe."""
    recipe_digest: Sha256
    """Of the recipe's path and options."""
    base_release_id: ReleaseId
    """The head when it was sealed: the trainer starts from these weights."""
    base_release_seq: int
    """Place of the base in the chain."""
    base_candidate_id: CandidateId | None
    """Of the base's content; None on release 0."""
    base_artifact_uri: str
    """Where the base's weights are."""
    base_content_sha256: Sha256
    """Of the base's content."""
    experience_ids: tuple[ExperienceId, ...]
    """By index of the samples."""
    content_sha256: Sha256
    """Over id, tokens, mask, logprobs and reward of each sample; not over source or times."""
    sealed_at_us: int
    """Record time of the causing event; microseconds UTC."""
