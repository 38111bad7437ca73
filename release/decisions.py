"""Pure: whether an operator's command may be carried out, and what the service says of a candidate.

Commands are judged by the chain as it is when they are taken; they may be refused.
"""

from collections.abc import Mapping, Sequence

from release.evaluation import Measured
from release.head import Release
from schemas.errors import ConflictError, RejectedError
from schemas.events import (
    CandidateEvaluated,
    CandidateTrained,
    PromoteCandidate,
    RollBackRelease,
    Verdict,
    VerdictReason,
)
from schemas.ids import BatchId, CandidateId

US = 1_000_000


def check_command(
    command: RollBackRelease | PromoteCandidate, releases: Sequence[Release], *, now_us: int, age_s_max: float
) -> None:
    """Refuse what is too old to be acted on, or was meant for another head."""
    if now_us - command.requested_at_us > age_s_max * US:
        raise RejectedError(
            f"expected a command of the last {age_s_max:g} s, got an older one: ask again if it is still "
            "wanted",
            reason="command_expired",
        )
    expected = command.expected_head_release_id
    if expected is not None and releases[-1].release_id != expected:
        raise ConflictError(
            f"expected the head to be {expected[:80]}, got {releases[-1].release_id}: see the releases, then "
            "ask again",
            reason="head_moved",
        )


def rollback_target(command: RollBackRelease, releases: Sequence[Release]) -> Release:
    """Find the release whose content comes back. Raises RejectedError."""
    for release in releases:
        if release.release_id == command.target_release_id:
            return release
    raise RejectedError(
        f"expected a release of {command.scenario}, got {command.target_release_id[:80]}: see its releases",
        reason="no_such_release",
    )


def check_held(command: PromoteCandidate, verdicts: Mapping[CandidateId, Verdict]) -> None:
    """Refuse to promote what was never held. Raises RejectedError, ConflictError."""
    verdict = verdicts.get(command.candidate_id)
    if verdict is None:
        raise RejectedError(
            f"expected a candidate of {command.scenario} that was evaluated, got "
            f"{command.candidate_id[:80]}: see its candidates",
            reason="no_such_candidate",
        )
    if verdict is not Verdict.HELD:
        raise ConflictError(
            f"expected a held candidate, got one that is {verdict}: only held ones are promoted",
            reason="not_held",
        )


def candidate_evaluated(
    candidate: CandidateTrained,
    verdict: Verdict,
    measured: Measured,
    *,
    batch_ids: tuple[BatchId, ...] = (),
    now_us: int,
) -> CandidateEvaluated:
    """State what became of a candidate that is not published."""
    return CandidateEvaluated(
        candidate_id=candidate.candidate_id,
        scenario=candidate.scenario,
        batch_ids=batch_ids or (candidate.batch_id,),
        verdict=verdict,
        reasons=measured.reasons,
        metrics=measured.metrics,
        baseline_metrics=measured.baseline_metrics,
        evaluated_at_us=now_us,
    )


def reason_of(error: RejectedError) -> VerdictReason | None:
    """Give the verdict's word for a refusal, if it is about the candidate."""
    return VerdictReason(error.reason) if error.reason in set(VerdictReason) else None
