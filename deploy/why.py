"""Pure: "why was this not trained?" answered in a sentence, for every reason of the closed list.

docs/outcomes.md tells the same at more length; a test holds the two together.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from schemas.events import OutcomeReason

WHY: Mapping[OutcomeReason, str] = MappingProxyType(
    {
        OutcomeReason.NO_FEEDBACK: (
            "no report on it came within `join_window_s` of its arrival in the log: report sooner, or "
            "raise that window"
        ),
        OutcomeReason.NO_REWARD: (
            "reports came, but the recipe read no reward from any of them: send a `score`, or map texts "
            "with `feedback_scores`"
        ),
        OutcomeReason.STALE: (
            "the weights that wrote it lie more than `max_staleness` releases behind the head, or not on "
            "its line: report sooner, train smaller batches, or raise that limit"
        ),
        OutcomeReason.CANDIDATE_REJECTED: (
            "the candidate trained from its batch was not published: it failed the evaluation, or another "
            "release took its place first; nothing is wrong with the call"
        ),
        OutcomeReason.OPTED_OUT: "the client forbade it with `x-reef-no-train`",
        OutcomeReason.NOT_TOKEN_EXACT: (
            "its token ids or log-probabilities are not those of the sampling (the engine gave none, or "
            "it was imported): look at its `capture_faults`"
        ),
        OutcomeReason.TOKEN_GAP: (
            "fewer or more token ids were captured than the engine counted: report it as a bug of the "
            "engine or of the capture"
        ),
        OutcomeReason.SAMPLING_TRUNCATED: (
            "the request narrowed the distribution it was sampled from, and the recipe does not correct "
            "for it: leave `top_p`, `top_k`, `min_p` and penalties at their defaults"
        ),
        OutcomeReason.GREEDY: "temperature 0 is no sample of the policy: sample with a temperature above 0",
        OutcomeReason.TOO_LONG: (
            "its sample would have more tokens than `sample_tokens_max`: raise that limit if memory allows"
        ),
        OutcomeReason.CLIENT_ABORTED: "the client left before the end of the answer",
        OutcomeReason.UPSTREAM_FAILED: (
            "the engine broke off before the end of the answer: see the engine's log"
        ),
        OutcomeReason.WITHDRAWN: "the report behind it was taken back, or a correction no longer names it",
        OutcomeReason.BUFFER_OVERFLOW: (
            "more was waiting than `max_calls_per_route` or `buffer_experiences_max` allows, and the "
            "oldest went: tag sessions, train faster, or raise the limit"
        ),
        OutcomeReason.TRAINING_FAILED: (
            "the trainer could not train its batch: see the failure and the trainer's log"
        ),
        OutcomeReason.FOREIGN_TOKENIZER: (
            "its token ids belong to another tokenizer than the head's: the model was changed since"
        ),
        OutcomeReason.EXPIRED: (
            "it waited longer than `buffer_max_age_s` for a batch: lower `batch_size`, or wait for more "
            "traffic"
        ),
        OutcomeReason.LOG_TRUNCATED: (
            "the log no longer held what had to be read back: raise `kafka.retention_days`"
        ),
        OutcomeReason.FORGOTTEN: "its erasure was requested (`reef forget`) before it was in a sealed batch",
        OutcomeReason.RECORD_ONLY: "its scenario has `target: none`, so it only records",
        OutcomeReason.SCENARIO_RETIRED: "its scenario was retired",
        OutcomeReason.UNSPECIFIED: (
            "a newer service ended it in a way that this version does not know: upgrade"
        ),
    }
)
"""What a call was dropped for, after "not trained: "."""

NOTES: Mapping[str, str] = MappingProxyType(
    {"late_after_trained": "a report or a withdrawal came after its batch was sealed and changed nothing"}
)
"""What else happened to a call that keeps its state."""


def why(call: Mapping[str, Any], *, experience: Mapping[str, Any] | None = None) -> str:
    """Say in a sentence what became of a call, as the gateway tells of it, and why."""
    said = _WORDS.get(call["state"], _unknown)(call, experience)
    notes = [NOTES.get(note, note) for note in call.get("notes") or ()]
    return "; ".join([said, *notes])


def _trained(call: Mapping[str, Any], _: Mapping[str, Any] | None) -> str:
    if call.get("release_id"):
        return f"trained: it is part of release {call['release_id']}"
    return (
        "trained, in no release by itself: its batch warmed up a critic, or its candidate was held; a "
        "promotion adds it to a release"
    )


def _dropped(call: Mapping[str, Any], _: Mapping[str, Any] | None) -> str:
    return f"not trained: {_reason(call.get('reason'))}"


def _pending(call: Mapping[str, Any], experience: Mapping[str, Any] | None) -> str:
    if experience is not None:
        return "not trained yet: its sample waits for a batch, or its batch for the end of the training"
    if call.get("reports"):
        return "not trained yet: a report came, but no sample of it is found so far; see `reef status`"
    if "reports" in call:
        return "not trained yet: no report on it has come, and its window is still open"
    return "not trained yet: nothing is decided"


def _unknown(call: Mapping[str, Any], _: Mapping[str, Any] | None) -> str:
    return f"{call['state']}: {WHY[OutcomeReason.UNSPECIFIED]}"


def _reason(reason: str | None) -> str:
    try:
        return f"{WHY[OutcomeReason(reason or '')]} ({reason})"
    except ValueError:
        return f"{WHY[OutcomeReason.UNSPECIFIED]} ({reason})"


_WORDS = {"trained": _trained, "dropped": _dropped, "pending": _pending}
