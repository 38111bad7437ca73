"""Shell: the two stages of a replay, partition by partition, from spools to spools and tables (STREAMS 29).

Sessions are folded from the calls and reports. Batches are folded from the recorded experiences or, when
something is changed, from the recomputed ones, merged with what the log tells of releases.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from heapq import merge
from itertools import accumulate

from schemas.codec import fingerprint
from schemas.errors import RejectedError
from schemas.events import (
    ClockTicked,
    ExperienceRevised,
    ExperienceWithdrawn,
    FeedbackReported,
    ReleaseAdvanced,
    ScenarioConfigured,
)
from schemas.ids import Receipt
from schemas.records import Place
from schemas.topics import EXPERIENCE, INTERACTIONS
from streams.batch_entries import NEVER_US
from streams.batch_state import BatchState
from streams.outputs import Timed
from streams.receipts import made_us
from streams.replay.change import Change, changed
from streams.replay.outlet import Outlet
from streams.replay.partition_log import PartitionLog
from streams.replay.plan import BATCHES, SESSIONS, Plan, Tally
from streams.replay.refold import Trainer, refold_batches, refold_sessions
from streams.replay.spool import Spool, Spooled, SpoolWriter
from streams.scenario import LoadRecipe
from streams.session_state import SessionState

TELL_EVENTS = 500
"""Progress is told after so many events."""
RECORDED = -1
"""Where what the log tells stands beside what is recomputed, at the same time: before it."""

Tell = Callable[[int], None]
"""Is told how many events more were folded."""
_Key = tuple[int, int, int]


def fold_sessions(plan: Plan, number: int, tell: Tell) -> Tally:
    """Fold one partition of `reef.interactions.v1` again."""
    place = Place(INTERACTIONS, number)
    state = SessionState(partition=number, num_partitions=plan.num_interactions, load_recipe=plan.load_recipe)
    with Spool(plan.input_of(place)) as spool, Outlet(plan, SESSIONS, number) as outlet:
        log = PartitionLog(spool, number)
        events = _told(_with_change(log.timed(), plan.change, plan.load_recipe), tell)
        noted = _noting(events, lambda timed: _note_report(outlet, state, timed, plan.begins_at_us))
        for timed, outputs in refold_sessions(state, noted, log, plan.facts.erasures):
            outlet.say(timed, state.now_us, outputs)
    return outlet.tally


def fold_batches(plan: Plan, number: int, tell: Tell) -> Tally:
    """Fold one partition of `reef.experience.v1` again, or what would have stood there."""
    place = Place(EXPERIENCE, number)
    path = plan.input_of(place)
    if plan.change:
        path = plan.merged_of(number)
        _merge(plan, number)
    state = BatchState(load_recipe=plan.load_recipe)
    trainer = Trainer(releases_left=plan.releases_left(), live_batches=plan.facts.live_batches)
    with Spool(path) as spool, Outlet(plan, BATCHES, number) as outlet:
        log = PartitionLog(spool, number)
        events = _told(_with_change(log.timed(), plan.change, plan.load_recipe), tell)
        noted = _noting(events, lambda timed: _note_correction(outlet, state, timed, plan.begins_at_us))
        for timed, outputs in refold_batches(state, noted, log, trainer, plan.facts.erasures):
            outlet.say(timed, state.now_us, outputs)
    return outlet.tally


def _told(events: Iterator[Timed], tell: Tell) -> Iterator[Timed]:
    number = 0
    for number, timed in enumerate(events, 1):
        yield timed
        if number % TELL_EVENTS == 0:
            tell(TELL_EVENTS)
    tell(number % TELL_EVENTS)


def _noting(events: Iterator[Timed], note: Callable[[Timed], None]) -> Iterator[Timed]:
    for timed in events:
        note(timed)
        yield timed


def _with_change(events: Iterator[Timed], change: Change, load_recipe: LoadRecipe) -> Iterator[Timed]:
    if not change:
        return events
    return (
        replace(timed, event=changed(timed.event, change, load_recipe))
        if isinstance(timed.event, ScenarioConfigured)
        else timed
        for timed in events
    )


def _note_report(outlet: Outlet, state: SessionState, timed: Timed, begins_at_us: int) -> None:
    event = timed.event
    if not begins_at_us or not isinstance(event, FeedbackReported):
        return
    for name in event.references:
        if _made_us(name) < begins_at_us and not state.is_call_of(event.scenario, Receipt(name)):
            row = ("report", event.report_id, name, INTERACTIONS, timed.partition, timed.offset)
            outlet.note_before_range(row)


def _made_us(name: str) -> int:
    """Tell when a receipt was made; the client's own id of an imported call does not tell: now."""
    try:
        return made_us(Receipt(name))
    except RejectedError:
        return NEVER_US


def _note_correction(outlet: Outlet, state: BatchState, timed: Timed, begins_at_us: int) -> None:
    event = timed.event
    if not begins_at_us or not isinstance(event, ExperienceRevised | ExperienceWithdrawn):
        return
    if state.sample(event.experience_id) is None:
        row = ("correction", event.report_id, event.experience_id, EXPERIENCE, timed.partition, timed.offset)
        outlet.note_before_range(row)


def _merge(plan: Plan, number: int) -> None:
    """Put recomputed experiences and recorded releases into one log, by (time, partition, offset, index)."""
    place = Place(EXPERIENCE, number)
    with ExitStack() as opened:
        sources = [_recorded(opened.enter_context(Spool(plan.input_of(place))))]
        for source in range(plan.num_interactions):
            path = plan.said_of(SESSIONS, source, place)
            if path.exists():
                sources.append(_recomputed(opened.enter_context(Spool(path)), source))
        merged = opened.enter_context(SpoolWriter(plan.merged_of(number)))
        for offset, (_, record) in enumerate(merge(*sources, key=lambda keyed: keyed[0])):
            merged.append(record._replace(offset=offset))


def _recomputed(spool: Spool, partition: int) -> Iterator[tuple[_Key, Spooled]]:
    return (((record.time_us, partition, record.offset), record) for record in spool)


def _recorded(spool: Spool) -> Iterator[tuple[_Key, Spooled]]:
    """Give what no session fold says: heads, configurations and time."""
    wanted = {fingerprint(kind) for kind in (ReleaseAdvanced, ScenarioConfigured, ClockTicked)}
    records = (record for record in spool if record.value[2:10] in wanted)
    monotone = accumulate(records, lambda before, now: now._replace(time_us=max(before.time_us, now.time_us)))
    return (((record.time_us, RECORDED, record.offset), record) for record in monotone)
