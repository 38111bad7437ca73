"""Pure: the batch fold: experiences of `reef.experience.v1` become batches, each sample fresh or named stale.

Staleness is judged here alone, sample by sample. One batch is in flight in a scenario; it ends with
BatchSettled. What waits is bounded, and every experience ends in one batch or under one reason.

Next: streams/sealing.py
"""

from dataclasses import replace

from schemas.errors import RejectedError
from schemas.events import (
    BatchSettled,
    ClockTicked,
    ErasureRequested,
    ExperienceAssembled,
    ExperienceRevised,
    ExperienceWithdrawn,
    OutcomeReason,
    ReleaseAdvanced,
    ScenarioConfigured,
    TrainingTarget,
)
from schemas.events import (
    BatchState as SettledAs,
)
from schemas.ids import ExperienceId, ScenarioName
from streams.batch_entries import ERASED, Erased, Head, Held, Sample, Stage, waiting_sample
from streams.batch_state import BatchState
from streams.ending import BatchMoment, drop, end_with_batch, note_late
from streams.lineage import NODES_MAX, distance, node_of
from streams.moment import SECOND_US, Moment
from streams.outputs import Fetched, FetchNeededError, Output, Timed
from streams.scenario import Scenario, configure
from streams.sealing import seal_if_ready
from streams.window import UNCONFIGURED_LIMITS

JUDGED_MAX = 2_000
"""Waiting experiences judged again in one step, after the head or the configuration changed."""
HELD_MAX = 1_000
"""Held candidates of a scenario whose base is remembered; an older one is promoted onto a line of its own."""
ERASURE_WINDOW_US = 14 * 24 * 60 * 60 * 1_000_000
"""How long an erasure is remembered: as long as the log may hold what it speaks of."""


def needs(state: BatchState, timed: Timed, fetched: Fetched) -> frozenset[int]:
    """Name the offsets to be read back before the step; asked again until there are none."""
    before_us = state.now_us
    try:
        _advance(Moment(state=state, timed=timed, fetched=fetched))
    except FetchNeededError as error:
        return error.offsets
    finally:
        _undo(state, before_us)
    return frozenset()


def step(state: BatchState, timed: Timed, fetched: Fetched) -> tuple[BatchState, tuple[Output, ...]]:
    """Take one event; on any error the state is as before. Raises FetchNeededError."""
    before_us, has_ended = state.now_us, False
    moment = Moment(state=state, timed=timed, fetched=fetched)
    try:
        _advance(moment)
        state.journal.keep()
        has_ended = True
    finally:
        if not has_ended:
            _undo(state, before_us)
    return state, tuple(moment.outputs)


def _undo(state: BatchState, before_us: int) -> None:
    state.journal.undo()
    state.move_time(before_us)


def _advance(moment: BatchMoment) -> None:
    state = moment.state
    if moment.timed.time_us > state.now_us:
        state.move_time(moment.timed.time_us)
    for kind, key in state.due(JUDGED_MAX):
        _expire(moment, kind, key)
    mark, num_outputs = state.journal.mark(), len(moment.outputs)
    try:
        _take(moment)
    except RejectedError as error:
        state.journal.undo(mark)
        del moment.outputs[num_outputs:]
        moment.refuse(moment.timed.offset, error)
    for name in _touched(moment):
        _judge_waiting(moment, name)
        seal_if_ready(moment, name)


def _touched(moment: BatchMoment) -> list[ScenarioName]:
    """List the scenarios that may have a batch now: the event's, and those that are being judged again."""
    event = moment.timed.event
    named = () if isinstance(event, ClockTicked) else (event.scenario,) if hasattr(event, "scenario") else ()
    return sorted({*named, *moment.state.unjudged})


def _take(moment: BatchMoment) -> None:
    match moment.timed.event:
        case ExperienceAssembled() as event:
            _take_experience(moment, event)
        case ExperienceRevised() | ExperienceWithdrawn() as event:
            _take_correction(moment, event)
        case ReleaseAdvanced() as event:
            _take_release(moment, event)
        case BatchSettled() as event:
            _take_settlement(moment, event)
        case ScenarioConfigured() as event:
            moment.state.put_scenario(configure(event, moment.state.load_recipe))
            _judge_all_again(moment, event.scenario)
        case ErasureRequested() as event:
            _take_erasure(moment, event)
        case ClockTicked():
            pass
        case event:
            raise RejectedError(
                f"expected experiences, releases, settlements or ticks, got {type(event).__name__}: "
                "write it to its own topic",
                reason="unexpected_event",
            )


def _take_experience(moment: BatchMoment, event: ExperienceAssembled) -> None:
    state = moment.state
    if state.sample(event.experience_id) is not None:
        moment.count("repeated_experience")
        return
    scenario = state.scenario(event.scenario)
    limits = UNCONFIGURED_LIMITS if scenario is None else scenario.limits
    deadline_us = state.now_us + limits.buffer_max_age_s * SECOND_US
    sample = waiting_sample(event, offset=moment.timed.offset, deadline_us=deadline_us)
    state.put_sample(event.experience_id, sample)
    reason = _reason_against(state, sample)
    if reason is not None:
        drop(moment, event.experience_id, sample, reason)
    while state.num_waiting(event.scenario) > limits.buffer_experiences_max:
        (oldest,) = state.waiting(event.scenario, limit=1)
        drop(moment, oldest, _waiting(state, oldest), OutcomeReason.BUFFER_OVERFLOW)


def _waiting(state: BatchState, experience_id: ExperienceId) -> Sample:
    sample = state.sample(experience_id)
    assert sample is not None, experience_id
    assert sample.stage is Stage.WAITING, experience_id
    return sample


def _reason_against(state: BatchState, sample: Sample) -> OutcomeReason | None:
    """Name why an experience that waits may not be trained on; None when it may, as far as is known."""
    scenario, head = state.scenario(sample.scenario), state.head(sample.scenario)
    if any(state.is_erased(name) for name in _names(sample)):
        return OutcomeReason.FORGOTTEN
    if scenario is None:
        return None
    if scenario.is_retired or scenario.target is TrainingTarget.NONE:
        return OutcomeReason.SCENARIO_RETIRED if scenario.is_retired else OutcomeReason.RECORD_ONLY
    return None if head is None else _reason_against_head(state, sample, head, scenario)


def _reason_against_head(
    state: BatchState, sample: Sample, head: Head, scenario: Scenario
) -> OutcomeReason | None:
    if sample.tokenizer_digest != head.tokenizer_digest:
        return OutcomeReason.FOREIGN_TOKENIZER
    is_stale = _is_stale(state, sample, head, scenario.recipe.options.max_staleness)
    return OutcomeReason.STALE if is_stale else None


def _is_stale(state: BatchState, sample: Sample, head: Head, max_staleness: int) -> bool:
    """Whether the oldest of the weights that wrote it lie too far behind, or on another line."""
    node_at = state.nodes(sample.scenario).get
    for seq in (sample.release_seq_first, sample.release_seq_last):
        is_known = seq <= head.release_seq  # a newer one is about to be told of
        if (
            is_known
            and distance(node_at, head_seq=head.release_seq, sampled_seq=seq, at_most=max_staleness) is None
        ):
            return True
    return False


def _names(sample: Sample) -> tuple[str, ...]:
    if sample.session is None:
        return sample.receipts
    return (*sample.receipts, _session_name(sample.scenario, sample.session))


def _session_name(scenario: str, session: str) -> str:
    return f"session {scenario} {session}"


def _take_correction(moment: BatchMoment, event: ExperienceRevised | ExperienceWithdrawn) -> None:
    state = moment.state
    sample = state.sample(event.experience_id)
    if sample is None or (sample.stage is Stage.ENDED and sample.batch_id is None):
        moment.count("correction_without_effect")
    elif sample.stage is not Stage.WAITING:
        note_late(moment, event.experience_id, sample)
    elif isinstance(event, ExperienceWithdrawn):
        drop(moment, event.experience_id, sample, OutcomeReason.WITHDRAWN)
    else:
        revised = replace(
            sample,
            reward=event.reward,
            revision_offset=moment.timed.offset,
            report_ids=(*sample.report_ids, event.report_id),
        )
        state.put_sample(event.experience_id, revised)


def _take_release(moment: BatchMoment, event: ReleaseAdvanced) -> None:
    state, name = moment.state, event.scenario
    head = state.head(name)
    if head is not None and event.release_seq <= head.release_seq:
        moment.count("repeated_release")
        return
    held = state.held(name, event.candidate_id)
    head_seq = None if head is None else head.release_seq
    node = node_of(event, state.nodes(name), head_seq, None if held is None else held.base_seq)
    state.put_node(name, event.release_seq, node)
    for seq in sorted(seq for seq in state.nodes(name) if seq <= event.release_seq - NODES_MAX):
        state.put_node(name, seq, None)  # numbers have gaps where a release was no weights
    if held is not None and event.candidate_id is not None:
        state.put_held(name, event.candidate_id, None)
    new_head = Head(
        release_id=event.release_id,
        release_seq=event.release_seq,
        candidate_id=event.candidate_id,
        artifact_uri=event.artifact_uri,
        content_sha256=event.content_sha256,
        tokenizer_digest=event.tokenizer_digest,
    )
    state.put_head(name, new_head)
    _judge_all_again(moment, name)


def _take_settlement(moment: BatchMoment, event: BatchSettled) -> None:
    state, name = moment.state, event.scenario
    progress = state.progress(name)
    if progress.batch_id != event.batch_id:
        moment.count("repeated_settlement")
        return
    for experience_id in progress.experience_ids:
        sample = state.sample(experience_id)
        assert sample is not None, experience_id
        end_with_batch(moment, experience_id, sample, event)
    if event.state is SettledAs.HELD and event.candidate_id is not None:
        state.put_held(name, event.candidate_id, Held(base_seq=progress.base_seq, offset=moment.timed.offset))
        state.forget_oldest_held(name, HELD_MAX)
    state.put_progress(name, replace(progress, batch_id=None, experience_ids=()))


def _take_erasure(moment: BatchMoment, event: ErasureRequested) -> None:
    state, names = moment.state, erased_names(event)
    erased = Erased(offset=moment.timed.offset, deadline_us=state.now_us + ERASURE_WINDOW_US)
    for name in names:
        state.put_erased(name, erased)
    for experience_id in list(state.waiting(event.scenario)):
        sample = _waiting(state, experience_id)
        if not set(names).isdisjoint(_names(sample)):
            drop(moment, experience_id, sample, OutcomeReason.FORGOTTEN)


def erased_names(event: ErasureRequested) -> tuple[str, ...]:
    """Name what must not be learned from, as samples are looked up."""
    if event.session is None:
        return event.receipts
    return (*event.receipts, _session_name(event.scenario, event.session))


def _judge_all_again(moment: BatchMoment, name: ScenarioName) -> None:
    progress = moment.state.progress(name)
    again = replace(progress, judged_offset=-1, judge_until_offset=moment.timed.offset)
    moment.state.put_progress(name, again)


def _judge_waiting(moment: BatchMoment, name: ScenarioName) -> None:
    """Drop what the present head or configuration forbids, a part at a time."""
    state, progress = moment.state, moment.state.progress(name)
    if progress.judged_offset >= progress.judge_until_offset:
        return
    waiting = state.waiting(name, after_offset=progress.judged_offset, limit=JUDGED_MAX)
    judged_offset = progress.judge_until_offset
    if len(waiting) == JUDGED_MAX:
        judged_offset = _waiting(state, waiting[-1]).offset
    for experience_id in waiting:
        sample = _waiting(state, experience_id)
        reason = _reason_against(state, sample)
        if reason is not None:
            drop(moment, experience_id, sample, reason)
    state.put_progress(name, replace(progress, judged_offset=judged_offset))


def _expire(moment: BatchMoment, kind: str, key: str) -> None:
    state = moment.state
    if kind == ERASED:
        state.put_erased(key, None)
        return
    experience_id = ExperienceId(key)
    sample = state.sample(experience_id)
    assert sample is not None, key
    if sample.stage is Stage.ENDED:
        state.put_sample(experience_id, None)
    else:
        reason = OutcomeReason.NO_REWARD if sample.reward is None else OutcomeReason.EXPIRED
        drop(moment, experience_id, sample, reason)
