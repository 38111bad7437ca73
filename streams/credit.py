"""Pure: a report credits calls: experiences are assembled, revised or withdrawn.

With credit `turn` a report credits the calls it names, with `session` all turns up to them (see
streams/coverage.py). A call is credited once, by the first report.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

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
from streams.coverage import Covered, covered_calls, covering_reports
from streams.entries import Call, CallStatus, Experience, Fact, Report, ReportStatus, is_pending
from streams.receipts import made_us
from streams.reports import (
    check_room,
    hold_calls,
    is_ready,
    parsed_json,
    replaced_by,
    report_id_in,
)
from streams.scenario import Scenario
from streams.session_state import SessionState
from streams.trajectory import Trajectory, assemble
from streams.window import (
    SessionMoment,
    end_call,
    for_each,
    forget_repeat_us,
    keep_until_us,
    limits_of,
    receipt_of,
    settle,
)

Replaced = list[tuple[str, Report]]
"""Reports whose place another takes, by key."""


class Judgement(NamedTuple):
    """What a report says of the calls it credits."""

    event: FeedbackReported
    scenario: Scenario
    reward: float | None
    """As the recipe reads it."""
    metadata: dict[str, Any]
    """As reported; empty when absent."""

    @property
    def choice(self) -> int | None:
        """The answer that the report speaks of; None when it names none."""
        choice = self.metadata.get("choice")
        return choice if isinstance(choice, int) and not isinstance(choice, bool) else None


def take_arriving(moment: SessionMoment, key: str, report: Report) -> None:
    """Apply a report that arrives, or let it wait. Raises RejectedError when there is no room to."""
    state = moment.state
    if report.status is ReportStatus.WAITING and is_ready(state, report):
        _apply_or_refuse(moment, key, report)
        return
    if report.status is ReportStatus.WAITING:
        check_room(state, report)
        hold_calls(state, report)
    state.reports.put(key, report)


def resolve(moment: SessionMoment, key: str) -> None:
    """Apply a report that has all it waits for; else let it wait, and its calls with it."""
    report = moment.state.report(key)
    if report is None or report.status is not ReportStatus.WAITING:
        return
    if is_ready(moment.state, report):
        _apply_or_refuse(moment, key, report)
    else:
        hold_calls(moment.state, report)


def expire_report(moment: SessionMoment, key: str, report: Report) -> None:
    """End the waiting of a report: take what came, or refuse the report if nothing did."""
    is_configured = moment.state.scenario(report.scenario) is not None
    has_calls = len(report.awaited) < len(report.references) and not report.is_withdrawal
    if is_configured and (has_calls or replaced_by(moment.state, key, report)):
        _apply_or_refuse(moment, key, report)
        return
    moment.state.reports.put(key, None)
    error = RejectedError(
        "expected the calls that the report names, and its scenario's configuration, within the orphan "
        "window, got neither in time: report within orphan_window_s of the call",
        reason="orphan_expired",
    )
    moment.refuse(report.offset, error)


def credit_arrival(moment: SessionMoment, receipt: Receipt, imported_id: str) -> None:
    """Give a call that arrives to the reports that have waited for it, or that cover it already."""
    state = moment.state
    if state.report_index.awaited:
        for_each(moment, _awaiting(state, receipt, imported_id), partial(_come, moment, receipt))
    if not state.report_index.covers_sessions:
        return
    call = state.call(receipt)
    if call is not None and is_pending(call):
        for key in _in_log_order(state, list(covering_reports(moment, receipt, call))):
            _credit_late(moment, key, receipt)


def _come(moment: SessionMoment, receipt: Receipt, key: str) -> None:
    """Take a call from the list of those that a report waits for."""
    state = moment.state
    report = _known(state, key)
    awaited = tuple([name for name in report.awaited if receipt_of(state, report.scenario, name) is None])
    if awaited == report.awaited:  # the call is of another scenario
        return
    state.reports.put(key, report._replace(awaited=awaited))
    if report.status is ReportStatus.APPLIED:
        _credit_late(moment, key, receipt)
    else:
        resolve(moment, key)


def _awaiting(state: SessionState, receipt: Receipt, imported_id: str) -> list[str]:
    keys = state.report_index.awaiting(receipt)
    if imported_id:
        keys = sorted({*keys, *state.report_index.awaiting(Receipt(imported_id))})
    return _in_log_order(state, keys)


def _known(state: SessionState, key: str) -> Report:
    report = state.report(key)
    assert report is not None, key
    return report


def _in_log_order(state: SessionState, keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: (_known(state, key).offset, key))


def _apply_or_refuse(moment: SessionMoment, key: str, report: Report) -> None:
    """Apply a report; one that cannot be applied is refused itself, not the event at hand."""
    mark, num_outputs = moment.state.journal.mark(), len(moment.outputs)
    try:
        _apply(moment, key, report)
    except RejectedError as error:
        moment.state.journal.undo(mark)
        del moment.outputs[num_outputs:]
        if moment.state.report(key) is not None:
            moment.state.reports.put(key, None)
        moment.refuse(report.offset, error)


def _apply(moment: SessionMoment, key: str, report: Report) -> None:
    judgement = _judge(moment, report)
    replaced = replaced_by(moment.state, key, report)
    later = [other_key for other_key, other in replaced if other.offset > report.offset and _counts(other)]
    if later:
        superseded = report._replace(status=ReportStatus.SUPERSEDED, superseded_by=later[-1], awaited=())
        moment.state.reports.put(key, superseded)
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
    scenario = moment.state.scenario(report.scenario)
    assert scenario is not None, report.scenario
    found = None if event.metadata is None else parsed_json(event.metadata, "metadata")
    metadata = found if isinstance(found, dict) else {}
    feedback = None if event.feedback is None else parsed_json(event.feedback, "feedback")
    reward = scenario.recipe.reward(ReportSeen(score=event.score, feedback=feedback, metadata=metadata))
    if reward is not None and not math.isfinite(reward):
        reward = None
    return Judgement(event, scenario, reward, metadata)


def _withdraw(moment: SessionMoment, key: str, report: Report, replaced: Replaced) -> None:
    state = moment.state
    for other_key, other in replaced:
        for experience_id in other.experiences:
            _withdraw_experience(moment, report, key, experience_id)
        gone = other._replace(status=ReportStatus.WITHDRAWN, superseded_by=key, awaited=(), experiences=())
        state.reports.put(other_key, gone)
    kept_us = keep_until_us(state, limits_of(state.scenario(report.scenario)))
    done = report._replace(status=ReportStatus.WITHDRAWN, deadline_us=kept_us, awaited=())
    state.reports.put(key, done)


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
        report_id=report_id_in(key),
        withdrawn_at_us=moment.state.now_us,
    )
    moment.say(withdrawn, EXPERIENCE)
    moment.state.experiences.put(experience_id, None)


def _credit(
    moment: SessionMoment, key: str, report: Report, judgement: Judgement, replaced: Replaced
) -> None:
    state = moment.state
    quoted = _quoted(state, report)
    _check_new(report, quoted)
    report = report._replace(
        status=ReportStatus.APPLIED,
        is_session=judgement.scenario.recipe.options.credit == "session",
        deadline_us=keep_until_us(state, judgement.scenario.limits),
        quoted_us=max([made_us(receipt) for receipt in quoted], default=0),
    )
    inherited = _take_over(moment, key, report, judgement, replaced) if replaced else ()
    covered = covered_calls(moment, report, quoted, judgement.choice)
    if not covered and not inherited:
        moment.count("report_without_effect")
    made = _assemble(moment, judgement, covered)
    state.reports.put(key, report._replace(experiences=inherited + made))


def _quoted(state: SessionState, report: Report) -> dict[Receipt, Call]:
    quoted: dict[Receipt, Call] = {}
    for reference in report.references:
        receipt = receipt_of(state, report.scenario, reference)
        call = None if receipt is None else state.call(receipt)
        if receipt is not None and call is not None:
            quoted[receipt] = call
    return quoted


def _check_new(report: Report, quoted: dict[Receipt, Call]) -> None:
    """Refuse a second report on calls that have one, unless it replaces it."""
    if report.supersedes is not None:
        return
    statuses = [call.status for call in quoted.values()]
    if CallStatus.CREDITED in statuses and CallStatus.PENDING not in statuses:
        raise RejectedError(
            "expected calls without a report, got only calls that an earlier report credits: name that "
            "report in supersedes to correct it",
            reason="already_credited",
        )


def _take_over(
    moment: SessionMoment, key: str, report: Report, judgement: Judgement, replaced: Replaced
) -> tuple[ExperienceId, ...]:
    """Label the experiences of the reports replaced anew; those that the new one does not speak of go."""
    state = moment.state
    kept: list[ExperienceId] = []
    for other_key, other in replaced:
        for experience_id in other.experiences:
            experience = state.experience(experience_id)
            if experience is None:
                continue
            if not _speaks_of(state, report, experience):
                _withdraw_experience(moment, report, key, experience_id)
                continue
            kept.append(experience_id)
            moment.say(_revised(moment, judgement, experience_id, experience), EXPERIENCE)
            state.experiences.put(experience_id, experience._replace(deadline_us=report.deadline_us))
        gone = other._replace(status=ReportStatus.SUPERSEDED, superseded_by=key, awaited=(), experiences=())
        state.reports.put(other_key, gone)
    return tuple(kept)


def _speaks_of(state: SessionState, report: Report, experience: Experience) -> bool:
    quoted = {receipt_of(state, report.scenario, reference) for reference in report.references}
    if not quoted.isdisjoint(experience.receipts):
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
    report, call = _known(moment.state, key), moment.state.call(receipt)
    if call is None or not is_pending(call) or report.status is not ReportStatus.APPLIED:
        return
    event = moment.read(call.offset, InferenceCompleted)
    assert event is not None, "expected the call that arrives to be at hand"
    is_quoted = receipt in report.references or event.imported_id in report.references
    try:
        judgement = _judge(moment, report)
        covered = Covered.of(event, call, judgement.choice, is_quoted)
    except RejectedError as error:
        moment.count(f"late_turn_{error.reason}")
        return
    made = _assemble(moment, judgement, [covered])
    moment.state.reports.put(key, report._replace(experiences=report.experiences + made))


def _assemble(
    moment: SessionMoment, judgement: Judgement, covered: list[Covered]
) -> tuple[ExperienceId, ...]:
    trainable = [each for each in covered if _may_train(moment, judgement.scenario, each)]
    if judgement.reward is None:
        for each in trainable:
            reported = each.call._replace(facts=int(each.call.facts | Fact.REPORTED))
            moment.state.calls.put(each.receipt, reported)
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
    state, limits = moment.state, judgement.scenario.limits
    event = _experience(moment, judgement, trajectory)
    moment.say(event, EXPERIENCE)
    moment.num_experiences += 1
    kept_us = keep_until_us(state, limits)
    state.experiences.put(event.experience_id, Experience(moment.timed.offset, kept_us, event.receipts))
    for receipt in event.receipts:
        call = calls[receipt]
        until_us = max(kept_us, forget_repeat_us(receipt, call.arrived_us, limits))
        end_call(state, receipt, call, CallStatus.CREDITED, until_us)
    return event.experience_id


def _experience(moment: SessionMoment, judgement: Judgement, trajectory: Trajectory) -> ExperienceAssembled:
    report, calls = judgement.event, [turn.call for turn in trajectory.turns]
    receipts = tuple([call.receipt for call in calls])
    release_seqs = [span.release_seq for call in calls for span in call.weight_spans]
    named = judgement.metadata.get("group")
    group = str(named) if isinstance(named, str | int) else None
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
        group=group,
        source=Source(
            partition=moment.timed.partition, offset=moment.timed.offset, index=moment.num_experiences
        ),
        tokenizer_digest=calls[-1].tokenizer_digest,
        assembled_at_us=moment.state.now_us,
    )
    if group is None and (group := judgement.scenario.recipe.group(experience)) is not None:
        return replace(experience, group=group)
    return experience
