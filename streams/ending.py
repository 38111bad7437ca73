"""Pure: how an experience ends, and with it the story of its calls: one outcome for each."""

from dataclasses import replace

from schemas.events import BatchSettled, OutcomeReason, OutcomeSettled, OutcomeState
from schemas.events import BatchState as SettledAs
from schemas.ids import ExperienceId
from schemas.topics import OUTCOMES
from streams.batch_entries import Sample, Stage
from streams.batch_state import BatchState
from streams.moment import SECOND_US, Moment
from streams.window import UNCONFIGURED_LIMITS

BatchMoment = Moment[BatchState]
"""A step of the batch fold."""
LATE = "late_after_trained"
"""A note: a report came after its sample was sealed, so it changed nothing."""

_ENDS = {
    SettledAs.TRAINED: (OutcomeState.TRAINED, None),
    SettledAs.HELD: (OutcomeState.TRAINED, None),
    SettledAs.WARMED_UP: (OutcomeState.TRAINED, None),
    SettledAs.REJECTED: (OutcomeState.DROPPED, OutcomeReason.CANDIDATE_REJECTED),
    SettledAs.FAILED: (OutcomeState.DROPPED, OutcomeReason.TRAINING_FAILED),
    SettledAs.UNSPECIFIED: (OutcomeState.DROPPED, OutcomeReason.UNSPECIFIED),
}


def drop(moment: BatchMoment, experience_id: ExperienceId, sample: Sample, reason: OutcomeReason) -> None:
    """End an experience that trains nothing."""
    ended = replace(sample, state=OutcomeState.DROPPED, reason=reason)
    _end(moment, experience_id, ended)


def end_with_batch(
    moment: BatchMoment, experience_id: ExperienceId, sample: Sample, event: BatchSettled
) -> None:
    """End an experience whose batch has ended."""
    state, reason = _ENDS[event.state]
    ended = replace(
        sample, state=state, reason=reason, candidate_id=event.candidate_id, release_id=event.release_id
    )
    _end(moment, experience_id, ended)


def note_late(moment: BatchMoment, experience_id: ExperienceId, sample: Sample) -> None:
    """Note that a report came after the sealing; calls whose story has ended get the note at once."""
    noted = replace(sample, notes=tuple(dict.fromkeys((*sample.notes, LATE))))
    moment.state.put_sample(experience_id, noted)
    if noted.stage is Stage.ENDED and noted.notes != sample.notes:
        _say_outcomes(moment, experience_id, noted)


def _end(moment: BatchMoment, experience_id: ExperienceId, sample: Sample) -> None:
    scenario = moment.state.scenario(sample.scenario)
    limits = UNCONFIGURED_LIMITS if scenario is None else scenario.limits
    kept_until_us = moment.state.now_us + limits.dedup_window_s * SECOND_US
    ended = replace(sample, stage=Stage.ENDED, deadline_us=kept_until_us)
    moment.state.put_sample(experience_id, ended)
    _say_outcomes(moment, experience_id, ended)


def _say_outcomes(moment: BatchMoment, experience_id: ExperienceId, sample: Sample) -> None:
    assert sample.state is not None, experience_id
    for receipt in sample.receipts:
        outcome = OutcomeSettled(
            receipt=receipt,
            scenario=sample.scenario,
            state=sample.state,
            reason=sample.reason,
            notes=sample.notes,
            experience_id=experience_id,
            batch_id=sample.batch_id,
            candidate_id=sample.candidate_id,
            release_id=sample.release_id,
            settled_at_us=moment.state.now_us,
        )
        moment.say(outcome, OUTCOMES)
