"""Pure: what was learned from sessions, and what batches need to know, as events of `reef.experience.v1`.

Next: streams/batch.py
"""

from dataclasses import dataclass
from enum import StrEnum

from schemas.events.releases import Operation
from schemas.ids import (
    BatchId,
    CandidateId,
    ExperienceId,
    Receipt,
    ReleaseId,
    ReportId,
    ScenarioName,
    Session,
    Sha256,
)
from schemas.packed import JsonBytes, Logprobs, Mask, Temperatures, TokenIds


class BatchState(StrEnum):
    """How a batch's story ended."""

    UNSPECIFIED = "unspecified"
    """Written by a newer relay than the reader knows."""
    TRAINED = "trained"
    """Its candidate was published."""
    REJECTED = "rejected"
    """Its candidate was refused: by the evaluation, or as overtaken."""
    HELD = "held"
    """Its candidate waits for an operator."""
    WARMED_UP = "warmed_up"
    """It trained what is not published, such as a critic."""
    FAILED = "failed"
    """The trainer could not train it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The place in the log that caused an experience."""

    partition: int
    """Of `reef.interactions.v1`."""
    offset: int
    """Of the event that caused it."""
    index: int
    """Among the experiences caused by that event, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceAssembled:
    """One trainable sequence: what the model read, what it wrote, and how good that was."""

    experience_id: ExperienceId
    """Derived from the receipts and the first report."""
    scenario: ScenarioName
    """The record's key."""
    session: Session | None
    """As tagged by the client."""
    token_ids: TokenIds
    """Prompt and answers of all merged turns, in order."""
    loss_mask: Mask
    """1 on tokens that the model generated, 0 on what it read."""
    logprobs: Logprobs
    """Behaviour logprobs; 0.0 where masked."""
    temperatures: Temperatures
    """As sampled; 1.0 where masked."""
    num_prompt_tokens: int
    """Tokens before the first generated one."""
    num_realigned_tokens: int
    """Generated tokens that a later turn rendered otherwise, hence masked."""
    reward: float | None
    """By the recipe; None when the report gave none."""
    feedback: JsonBytes | None
    """As reported."""
    release_seq_first: int
    """Oldest release that wrote a token of it."""
    release_seq_last: int
    """Newest release that wrote a token of it."""
    receipts: tuple[Receipt, ...]
    """The calls merged, in order."""
    report_ids: tuple[ReportId, ...]
    """The reports that credit it, in log order."""
    group: str | None
    """Samples to be compared with one another, from `metadata.group` or the recipe."""
    source: Source
    """The event that caused it."""
    tokenizer_digest: Sha256
    """Of the tokenizer that made the ids."""
    assembled_at_us: int
    """Record time of the causing event; microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceRevised:
    """A later report changed how good an experience was."""

    experience_id: ExperienceId
    """The experience revised."""
    scenario: ScenarioName
    """The record's key."""
    receipts: tuple[Receipt, ...]
    """Its calls."""
    reward: float | None
    """The new reward."""
    feedback: JsonBytes | None
    """The new feedback."""
    report_id: ReportId
    """The report that did it."""
    revised_at_us: int
    """Record time of the causing event; microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceWithdrawn:
    """The report behind an experience was taken back."""

    experience_id: ExperienceId
    """The experience withdrawn."""
    scenario: ScenarioName
    """The record's key."""
    receipts: tuple[Receipt, ...]
    """Its calls."""
    report_id: ReportId
    """The report that did it."""
    withdrawn_at_us: int
    """Record time of the causing event; microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAdvanced:
    """The head of the chain moved."""

    scenario: ScenarioName
    """The record's key."""
    release_id: ReleaseId
    """The new head."""
    release_seq: int
    """Its place in the chain."""
    operation: Operation
    """Why it moved."""
    candidate_id: CandidateId | None
    """Of its content; a rollback names the restored content's, release 0 none."""
    artifact_uri: str
    """Where the trainer finds the weights."""
    content_sha256: Sha256
    """Of the content; staleness follows it, not the number."""
    tokenizer_digest: Sha256
    """Experience of another tokenizer is foreign."""
    advanced_at_us: int
    """When the release was published; microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettled:
    """The batch in flight has ended, and the next may be sealed."""

    scenario: ScenarioName
    """The record's key."""
    batch_id: BatchId
    """The batch."""
    state: BatchState
    """How it ended."""
    candidate_id: CandidateId | None
    """What it produced; None when it failed."""
    release_id: ReleaseId | None
    """The release it became; None unless published."""
    settled_at_us: int
    """Time of the causing event; microseconds UTC."""
