"""What holds of a replay of every history: it says what the live folds said, and says it twice alike."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings

from schemas.codec import encode
from schemas.events import BatchSealed, Event, ExperienceAssembled, FeedbackReported, TrainingSample
from schemas.ids import BatchId, ReportId
from schemas.partitions import partition_of
from schemas.topics import EXPERIENCE, OUTCOMES, TRAINING
from streams.outputs import Emitted, Output, Timed
from streams.replay.plan import BATCHES, SESSIONS, Facts
from streams.replay.stages import fold_sessions
from streams.replay.workers import SMALL_RECORDS, Crew
from tests.unit.streams.histories import NUM_HISTORIES, a_history, at_offsets, random_histories, seeds
from tests.unit.streams.replay.replaying import Replayed, replayed
from tests.unit.streams.test_batch_histories import World, a_world
from tests.unit.streams.test_session_histories import fold_log, folded

some_histories = settings(random_histories, max_examples=max(25, NUM_HISTORIES // 4))
"""Each writes files."""


def live(outputs: Sequence[Output], topic: str) -> list[bytes]:
    return [encode(each.event) for each in outputs if isinstance(each, Emitted) and each.topic == topic]


def encoded(events: Sequence[Event]) -> list[bytes]:
    return [encode(event) for event in events]


def log_of(world: World) -> list[Timed]:
    return [world.folding.log[offset] for offset in sorted(world.folding.log)]


def of_world(world: World, folder: Path) -> Replayed:
    sealed: list[BatchSealed] = world.folding.emitted(BatchSealed)
    facts = Facts(live_batches=frozenset({BatchId(each.batch_id) for each in sealed}))
    return replayed(folder, [[]], [log_of(world)], facts=facts)


@some_histories
@given(seed=seeds)
def test_sessions_replayed_say_what_the_live_fold_said(seed: int) -> None:
    with TemporaryDirectory() as folder:
        again = replayed(Path(folder), [a_history(seed).log])
        assert encoded(again.said(SESSIONS, EXPERIENCE)) == live(folded(seed).outputs, EXPERIENCE)
        assert encoded(again.said(SESSIONS, OUTCOMES)) == live(folded(seed).outputs, OUTCOMES)
        refused = sum(count for name, count in again.tally.counts.items() if name.startswith("refused: "))
        assert refused == len(folded(seed).refused())


@some_histories
@given(seed=seeds)
def test_batches_replayed_are_the_live_ones_sample_by_sample(seed: int) -> None:
    world = a_world(seed)
    with TemporaryDirectory() as folder:
        again = of_world(world, Path(folder))
        assert encoded(again.said(BATCHES, TRAINING)) == live(world.folding.outputs, TRAINING)
        assert encoded(again.said(BATCHES, OUTCOMES)) == live(world.folding.outputs, OUTCOMES)


@some_histories
@given(seed=seeds)
def test_two_replays_write_the_same_bytes(seed: int) -> None:
    with TemporaryDirectory() as folder:
        logs = ([a_history(seed).log], [log_of(a_world(seed))])
        first = replayed(Path(folder) / "1", *logs, out=Path(folder) / "one")
        second = replayed(Path(folder) / "2", *logs, out=Path(folder) / "two")
        assert first.digests() == second.digests()
        num_tables = len({Path(name).parent for name in first.digests()})
        kinds = (
            *folded(seed).emitted(ExperienceAssembled)[:1],
            *first.of(BATCHES, TRAINING, TrainingSample)[:1],
        )
        assert num_tables >= len(kinds)


def by_route(log: Sequence[Timed], chance: Random, num_partitions: int) -> list[list[Timed]]:
    """Deal a log out to partitions; what has no route of its own goes to all of them. Some come twice."""
    dealt: list[list[Timed]] = [[] for _ in range(num_partitions)]
    for timed in log:
        route = getattr(timed.event, "route", None)
        numbers = range(num_partitions) if route is None else [partition_of(route.encode(), num_partitions)]
        for number in numbers:
            twice = route is not None and chance.random() < 0.3
            dealt[number] += [replace(timed, partition=number)] * (2 if twice else 1)
    return [at_offsets(each) for each in dealt]


@some_histories
@given(seed=seeds)
@example(seed=2_751_254_638)  # a report before its call's deadline, behind another route's event that is not
@example(seed=314_670_735)  # the only report, too late for its call once its partition gave it its time
def test_duplicates_and_other_interleavings_give_the_same_set_of_experiences(seed: int) -> None:
    """Routes meet in other partitions, in another order of numbers, and every third event comes twice."""
    log = _in_time(_reports_named_by_route(a_history(seed).log))
    chance = Random(seed)
    with TemporaryDirectory() as folder:
        first = replayed(Path(folder) / "1", [at_offsets(log)])
        second = replayed(Path(folder) / "2", by_route(log, chance, 3))
        found = [made_of(each) for each in (first, second)]
    assert found[0] == found[1]
    expected: list[ExperienceAssembled] = fold_log(at_offsets(log)).emitted(ExperienceAssembled)
    assert found[0].keys() == {each.experience_id for each in expected}


def _in_time(log: Sequence[Timed]) -> list[Timed]:
    """Give each event the time that its partition gave it (STREAMS 10): others' clocks went before it."""
    times = accumulate((timed.time_us for timed in log), max)
    return [replace(timed, time_us=time_us) for timed, time_us in zip(log, times, strict=True)]


def _reports_named_by_route(log: Sequence[Timed]) -> list[Timed]:
    """Two routes never share a report's name: which came first would be the interleaving's word."""
    return [
        replace(timed, event=_named_by_route(timed.event))
        if isinstance(timed.event, FeedbackReported)
        else timed
        for timed in log
    ]


def _named_by_route(event: FeedbackReported) -> FeedbackReported:
    supersedes = None if event.supersedes is None else ReportId(f"{event.route}-{event.supersedes}")
    return replace(event, report_id=ReportId(f"{event.route}-{event.report_id}"), supersedes=supersedes)


def made_of(replay: Replayed) -> dict[str, tuple[object, ...]]:
    made: list[ExperienceAssembled] = replay.of(SESSIONS, EXPERIENCE, ExperienceAssembled)
    assert len({each.experience_id for each in made}) == len(made)
    return {
        each.experience_id: (each.receipts, each.token_ids, each.loss_mask, each.logprobs, each.reward)
        for each in made
    }


def test_processes_side_by_side_write_what_one_writes(tmp_path: Path) -> None:
    log = a_history(7).log
    partitions = [log, [replace(timed, partition=1) for timed in log]]
    alone = replayed(tmp_path / "1", partitions, out=tmp_path / "one")
    plan = replace(alone.plan, out=tmp_path / "two", kept=frozenset())
    told: list[int] = []
    with Crew(2) as crew:
        tallies = crew.do(partial(fold_sessions, plan), range(2), size=SMALL_RECORDS, tell=told.append)
        counts: Counter[str] = sum((tally.counts for tally in tallies), Counter())
    assert counts == alone.tally.counts
    assert replace(alone, plan=plan).digests() == alone.digests()
    assert told[-1] <= 2 * len(log)
