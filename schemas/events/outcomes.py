"""Pure: the named fate of every call, as events of `reef.outcomes.v1`."""

from dataclasses import dataclass
from enum import StrEnum

from schemas.ids import BatchId, CandidateId, ExperienceId, Receipt, ReleaseId, ScenarioName


class OutcomeState(StrEnum):
    """How a call's story ended. `pending` is never written: it is the absence of an outcome."""

    UNSPECIFIED = "unspecified"
    """Written by a newer processor than the reader knows."""
    TRAINED = "trained"
    """It was in a batch that was trained; the release is named if one was published."""
    DROPPED = "dropped"
    """It trains nothing, for the reason given."""


class OutcomeReason(StrEnum):
    """Why a call trained nothing. docs/outcomes.md tells who sets it, when, and what to do."""

    UNSPECIFIED = "unspecified"
    """Written by a newer processor than the reader knows."""
    NO_FEEDBACK = "no_feedback"
    """No report came within the join window."""
    NO_REWARD = "no_reward"
    """Reports came, but none from which the recipe reads a reward."""
    STALE = "stale"
    """The weights that wrote it lie too far behind the head."""
    CANDIDATE_REJECTED = "candidate_rejected"
    """Its batch's candidate was refused: by the evaluation, or as overtaken."""
    OPTED_OUT = "opted_out"
    """The client forbade it."""
    NOT_TOKEN_EXACT = "not_token_exact"
    """Ids or logprobs are not those of the sampling."""
    TOKEN_GAP = "token_gap"
    """The captured ids are not as many as the engine counted."""
    SAMPLING_TRUNCATED = "sampling_truncated"
    """The request narrowed the distribution, and the recipe cannot correct for it."""
    GREEDY = "greedy"
    """Temperature 0 is no sample of the policy."""
    TOO_LONG = "too_long"
    """More tokens than a sample may have."""
    CLIENT_ABORTED = "client_aborted"
    """The client left before the end."""
    UPSTREAM_FAILED = "upstream_failed"
    """The engine broke off."""
    WITHDRAWN = "withdrawn"
    """The report was taken back."""
    BUFFER_OVERFLOW = "buffer_overflow"
    """More was waiting than the limit allows; the oldest went."""
    TRAINING_FAILED = "training_failed"
    """The trainer could not train its batch."""
    FOREIGN_TOKENIZER = "foreign_tokenizer"
    """Its ids belong to another tokenizer than the head's."""
    EXPIRED = "expired"
    """It waited longer than `buffer_max_age_s` for a batch."""
    LOG_TRUNCATED = "log_truncated"
    """The log no longer holds it."""
    FORGOTTEN = "forgotten"
    """Its erasure was requested."""
    RECORD_ONLY = "record_only"
    """Its scenario trains nothing."""
    SCENARIO_RETIRED = "scenario_retired"
    """Its scenario was retired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSettled:
    """A call's fate; the latest for a receipt counts."""

    receipt: Receipt
    """The call; the record's key."""
    scenario: ScenarioName
    """The call's scenario."""
    state: OutcomeState
    """How it ended."""
    reason: OutcomeReason | None
    """Set when dropped."""
    notes: tuple[str, ...]
    """What else is worth knowing, such as `late_after_trained`."""
    experience_id: ExperienceId | None
    """The sample it was part of."""
    batch_id: BatchId | None
    """The batch it was sealed into."""
    candidate_id: CandidateId | None
    """What the batch became."""
    release_id: ReleaseId | None
    """The release that its candidate became."""
    settled_at_us: int
    """Record time of the causing event; microseconds UTC."""
