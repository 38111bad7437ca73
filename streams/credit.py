"""Pure: a report credits calls: experiences are assembled, revised or withdrawn.

With credit `turn` a report credits the calls it names, with `session` all turns up to them (see
streams/coverage.py). A call is credited once, by the first report.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from schemas.errors import RejectedError
from schemas.events import (
    ExperienceAssembled,
    ExperienceRevised,
    ExperienceWithdrawn,
    FeedbackReported,
    InferenceCompleted,
    OutcomeReason,
    Source,
)
from schemas.ids import ExperienceId, Receipt, derived_id
from schemas.recipe import Report as ReportSeen
from schemas.topics import EXPERIENCE
from streams.calls import reason_against
from streams.coverage import Covered, covered_calls, is_covered
from streams.entries import Call, CallStatus, Experience, Fact, Report, ReportStatus
from streams.moment import SECOND_US
from streams.reports import hold_calls, is_ready, parsed_json, replaced_by, report_id_of
from streams.scenario import Scenario
from streams.trajectory import Trajectory, assemble
from streams.window import SessionMoment, forget_repeat_us, limits_of, made_us, receipt_of, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a report says of the calls it credits."""

    event: FeedbackReported
    """The report."""
    scenario: Scenario
    """Its scenario."""
    reward: float | None
    """As the recipe reads it."""
    metadata: dict[str, Any]
    """As reported; empty when absent."""

    @property
    def choice(self) -> int | None:
        """The answer that the report speaks of; None when it names none."""
        choice = self.metadata.get("choice")
        return choice if isinstance(choice, int) and not isinstance(choice, bool) else None


def resolve(moment: SessionMoment, key: str) -> None:
    """Apply a report that has all it waits for; else let it wait, and its calls with it."""
    report = moment.state.report(key)
    if report is None or report.status is not ReportStatus.WAITING:
        return
    if is_ready(moment, report):
        _refusable(moment, key, report, _apply)
    else:
        hold_calls(moment, report)


def expire_report(moment: SessionMoment, key: str, report: Report) -> None:
    """End the waiting of a report: take what came, or refuse the report if nothing did."""
    is_configured = moment.state.scenarios[report.scenario] is not None
    has_target = report.supersedes is not None and bool(replaced_by(moment, key, report))
    has_calls = len(report.awaited) < len(report.references) and not report.is_withdrawal
    if is_configured and (has_target or has_calls):
        _refusable(moment, key, report, _apply)
        return
    moment.state.put_report(key, None)
    error = RejectedError(
        "expected the calls that the report names, and its scenario's configuration, within the orphan "
        "window, got neither in time: report within orphan_window_s of the call",
        reason="orphan_expired",
    )
    moment.refuse(report.offset, error)


def credit_arrival(moment: SessionMoment, receipt: Receipt, imported_id: str) -> None:
    """Give a call that arrives to the reports that have waited for it, or that cover it already."""
    state = moment.state
    names = [receipt, Receipt(imported_id)] if imported_id else [receipt]
    keys = {key for name in names for key in state.reports.awaiting(name)}
    for key in _in_log_order(moment, keys):
        report = _known(moment, key)
        awaited = tuple(name for name in report.awaited if receipt_of(moment, report.scenario, name) is None)
        state.put_report(key, report._replace(awaited=awaited))
        if awaited == report.awaited:  # the call is of another scenario
            continue
        if report.status is ReportStatus.APPLIED:
            _credit_late(moment, key, receipt)
        else:
            resolve(moment, key)
    call = state.call(receipt)
    if call is None or call.status is not CallStatus.PENDING:
        return
    for key in _in_log_order(moment, set(is_covered(moment, receipt, call))):
        _credit_late(moment, key, receipt)


def _known(moment: SessionMoment, key: str) -> Report:
    report = moment.state.report(key)
    assert report is not None, key
    return report


def _in_log_order(moment: SessionMoment, keys: set[str]) -> list[str]:
    return sorted(keys, key=lambda key: (_known(moment, key).offset, key))


def _refusable(
    moment: SessionMoment, key: str, report: Report, act: Callable[[SessionMoment, str, Report], None]
) -> None:
    """Act on a report; one that cannot be applied is refused itself, not the event at hand."""
    mark, num_outputs = moment.state.journal.mark(), len(moment.outputs)
    try:
        act(moment, key, report)
    except RejectedError as error:
        moment.state.journal.undo(mark)
        del moment.outputs[num_outputs:]
        moment.state.put_report(key, None)
        moment.refuse(report.offset, error)


def _apply(moment: SessionMoment, key: str, report: Report) -> None:
    judgement = _judge(moment, report)
    replaced = replaced_by(moment, key, report)
    later = [other_key for other_key, other in replaced if other.offset > report.offset and _counts(other)]
    if later:
        superseded = report._replace(status=ReportStatus.SUPERSEDED, superseded_by=later[-1])
        moment.state.put_report(key, superseded)
        moment.count("superseded_report")
    elif report.is_withdrawal:
        _withdraw(moment, key, report, replaced)
    else:
        _credit(moment, key, report, judgement, replaced)


def _counts(report: Report) -> bool:
    return report.status in (ReportStatus.APPLIED, ReportStatus.WITHDRAWN)


def _judge(moment: SessionMoment, report: Report) -> Judgement:
    event = moment.read(report.offset, FeedbackReported)
    if event is None:
        raise RejectedError(
            "expected the report to be in the log still, got its offset deleted: keep the log for longer",
            reason="log_truncated",
        )
    scenario = moment.state.scenarios[report.scenario]
    assert scenario is not None, report.scenario
    found = parsed_json(event.metadata, "metadata")
    metadata = found if isinstance(found, dict) else {}
    feedback = parsed_json(event.feedback, "feedback")
    reward = scenario.recipe.reward(ReportSeen(score=event.score, feedback=feedback, metadata=metadata))
    if reward is not None and not math.isfinite(reward):
        reward = None
    return Judgement(event=event, scenario=scenario, reward=reward, metadata=metadata)


def _withdraw(moment: SessionMoment, key: str, report: Report, replaced: list[tuple[str, Report]]) -> None:
    for other_key, other in replaced:
        for experience_id in other.experiences:
            _withdraw_experience(moment, report, key, experience_id)
        withdrawn = other._replace(
            status=ReportStatus.WITHDRAWN, superseded_by=key, awaited=(), experiences=()
        )
        moment.state.put_report(other_key, withdrawn)
    moment.state.put_report(key, _kept(moment, report)._replace(status=ReportStatus.WITHDRAWN, awaited=()))


def _withdraw_experience(
    moment: SessionMoment, report: Report, key: str, experience_id: ExperienceId
) -> None:
    experience = moment.state.experience(experience_id)
    if experience is None:
        return
    withdrawn = ExperienceWithdrawn(
        experience_id=experience_id,
        scenario=report.scenario,
        receipts=experience.receipts,
        report_id=report_id_of(key),
        withdrawn_at_us=moment.state.now_us,
    )
    moment.say(withdrawn, EXPERIENCE)
    moment.state.put_experience(experience_id, None)


def _credit(
    moment: SessionMoment, key: str, report: Report, judgement: Judgement, replaced: list[tuple[str, Report]]
) -> None:
    state = moment.state
    found = [receipt_of(moment, report.scenario, reference) for reference in report.references]
    quoted = {receipt: call for receipt in found if receipt is not None and (call := state.call(receipt))}
    quoted_us = max((made_us(receipt) for receipt in quoted), default=0)
    is_session = judgement.scenario.recipe.options.credit == "session"
    report = _kept(moment, report)._replace(
        status=ReportStatus.APPLIED, is_session=is_session, quoted_us=quoted_us
    )
    inherited = _take_over(moment, key, report, judgement, replaced)
    _check_new(report, quoted)
    covered = covered_calls(moment, report, quoted, judgement.choice)
    if not covered and not inherited:
        moment.count("report_without_effect")
    made = _assemble(moment, judgement, covered)
    state.put_report(key, report._replace(experiences=inherited + made))


def _check_new(report: Report, quoted: dict[Receipt, Call]) -> None:
    """Refuse a second report on calls that have one, unless it replaces it."""
    statuses = {call.status for call in quoted.values()}
    if report.supersedes is None and CallStatus.CREDITED in statuses and CallStatus.PENDING not in statuses:
        raise RejectedError(
            "expected calls without a report, got only calls that an earlier report credits: name that "
            "report in supersedes to correct it",
            reason="already_credited",
        )


def _kept(moment: SessionMoment, report: Report) -> Report:
    """Keep a report as long as corrections and repeats are recognised."""
    limits = limits_of(moment.state.scenarios[report.scenario])
    return report._replace(deadline_us=moment.state.now_us + limits.dedup_window_s * SECOND_US)


def _take_over(
    moment: SessionMoment, key: str, report: Report, judgement: Judgement, replaced: list[tuple[str, Report]]
) -> tuple[ExperienceId, ...]:
    """Label the experiences of the reports replaced anew; those that the new one does not speak of go."""
    kept: list[ExperienceId] = []
    for other_key, other in replaced:
        for experience_id in other.experiences:
            experience = moment.state.experience(experience_id)
            if experience is None:
                continue
            if not _speaks_of(report, experience):
                _withdraw_experience(moment, report, key, experience_id)
                continue
            kept.append(experience_id)
            moment.say(_revised(moment, judgement, experience_id, experience), EXPERIENCE)
            moment.state.put_experience(experience_id, experience._replace(deadline_us=report.deadline_us))
        superseded = other._replace(
            status=ReportStatus.SUPERSEDED, superseded_by=key, awaited=(), experiences=()
        )
        moment.state.put_report(other_key, superseded)
    return tuple(kept)


def _speaks_of(report: Report, experience: Experience) -> bool:
    if not set(report.references).isdisjoint(experience.receipts):
        return True
    return report.is_session and made_us(experience.receipts[0]) <= report.quoted_us


def _revised(
    moment: SessionMoment, judgement: Judgement, experience_id: ExperienceId, experience: Experience
) -> ExperienceRevised:
    return ExperienceRevised(
        experience_id=experience_id,
        scenario=judgement.scenario.name,
        receipts=experience.receipts,
        reward=judgement.reward,
        feedback=judgement.event.feedback,
        report_id=judgement.event.report_id,
        revised_at_us=moment.state.now_us,
    )


def _credit_late(moment: SessionMoment, key: str, receipt: Receipt) -> None:
    """Credit a call that comes after a report that covers it, as a sample of its own."""
    report, call = _known(moment, key), moment.state.call(receipt)
    if call is None or call.status is not CallStatus.PENDING or report.status is not ReportStatus.APPLIED:
        return
    event = moment.read(call.offset, InferenceCompleted)
    assert event is not None, "expected the call that arrives to be at hand"
    is_quoted = receipt in report.references or event.imported_id in report.references
    try:
        judgement = _judge(moment, report)
        covered = Covered.of(event, call, choice=judgement.choice, is_quoted=is_quoted)
    except RejectedError as error:
        moment.count(f"late_turn_{error.reason}")
        return
    made = _assemble(moment, judgement, [covered])
    moment.state.put_report(key, report._replace(experiences=report.experiences + made))


def _assemble(
    moment: SessionMoment, judgement: Judgement, covered: list[Covered]
) -> tuple[ExperienceId, ...]:
    trainable = [each for each in covered if _may_train(moment, judgement.scenario, each)]
    if judgement.reward is None:
        for each in trainable:
            reported = each.call._replace(facts=each.call.facts | Fact.REPORTED)
            moment.state.put_call(each.receipt, reported)
        return ()
    options = judgement.scenario.recipe.options
    assembled = assemble(
        [each.turn for each in trainable if each.turn is not None],
        sample_tokens_max=options.sample_tokens_max,
        realign_tokens_max=options.realign_threshold,
    )
    calls = {each.receipt: each.call for each in trainable}
    for receipt in assembled.too_long:
        settle(moment, receipt, calls[receipt], OutcomeReason.TOO_LONG)
    return tuple([_state_experience(moment, judgement, each, calls) for each in assembled.trajectories])


def _may_train(moment: SessionMoment, scenario: Scenario, covered: Covered) -> bool:
    reason = reason_against(covered.call, scenario)
    if reason is None and covered.turn is None:
        reason = OutcomeReason.LOG_TRUNCATED
    if reason is not None:
        settle(moment, covered.receipt, covered.call, reason)
    return reason is None


def _state_experience(
    moment: SessionMoment, judgement: Judgement, trajectory: Trajectory, calls: dict[Receipt, Call]
) -> ExperienceId:
    event = _experience(moment, judgement, trajectory)
    limits = judgement.scenario.limits
    kept_until_us = moment.state.now_us + limits.dedup_window_s * SECOND_US
    moment.say(event, EXPERIENCE)
    moment.num_experiences += 1
    experience = Experience(moment.timed.offset, kept_until_us, event.receipts)
    moment.state.put_experience(event.experience_id, experience)
    for receipt in event.receipts:
        call = calls[receipt]
        credited = call._replace(
            status=CallStatus.CREDITED,
            branches=(),
            deadline_us=max(kept_until_us, forget_repeat_us(receipt, call.arrived_us, limits)),
        )
        moment.state.put_call(receipt, credited)
    return event.experience_id


def _experience(moment: SessionMoment, judgement: Judgement, trajectory: Trajectory) -> ExperienceAssembled:
    report, calls = judgement.event, [turn.call for turn in trajectory.turns]
    receipts = tuple([call.receipt for call in calls])
    release_seqs = [span.release_seq for call in calls for span in call.weight_spans]
    experience = ExperienceAssembled(
        experience_id=ExperienceId(derived_id("Experience", report.scenario, *receipts, report.report_id)),
        scenario=report.scenario,
        session=calls[-1].session,
        token_ids=trajectory.token_ids,
        loss_mask=trajectory.loss_mask,
        logprobs=trajectory.logprobs,
        temperatures=trajectory.temperatures,
        num_prompt_tokens=trajectory.num_prompt_tokens,
        num_realigned_tokens=trajectory.num_realigned_tokens,
        reward=judgement.reward,
        feedback=report.feedback,
        release_seq_first=min(release_seqs),
        release_seq_last=max(release_seqs),
        receipts=receipts,
        report_ids=(report.report_id,),
        group=None,
        source=Source(
            partition=moment.timed.partition, offset=moment.timed.offset, index=moment.num_experiences
        ),
        tokenizer_digest=calls[-1].tokenizer_digest,
        assembled_at_us=moment.state.now_us,
    )
    return replace(experience, group=_group(judgement, experience))


def _group(judgement: Judgement, experience: ExperienceAssembled) -> str | None:
    group = judgement.metadata.get("group")
    return str(group) if isinstance(group, str | int) else judgement.scenario.recipe.group(experience)
