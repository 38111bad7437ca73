"""A replay's stages from spools: events a second beside the pure fold's, and memory by length of the log.

`python -m tests.bench.bench_replay [EVENTS]` prints one JSON line a figure. What Kafka takes to hand records
out is not in it; writing Parquet is. Rates are by processor time, since other programs share the machine.
"""

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time

import psutil

from schemas.codec import encode
from schemas.events import Event
from schemas.ids import Session, route_of_session
from schemas.records import Place
from schemas.topics import EXPERIENCE, INTERACTIONS, key_of
from streams.outputs import Timed
from streams.replay.plan import Facts, Plan
from streams.replay.spool import Spooled, SpoolWriter
from streams.replay.stages import fold_sessions
from streams.replay.workers import GC_THRESHOLDS, SMALL_RECORDS, Crew
from tests.bench.bench_fold import a_state, placed, run, template
from tests.unit.streams.folding import SCENARIO, START_US, a_configuration, a_report, receipt_at
from tests.unit.streams.recipes import load

EVENTS = 40_000
PARTITIONS = 2
GAP_US = 50_000
WINDOWS = {"join_window_s": 60, "orphan_window_s": 60, "dedup_window_s": 120}
"""Short, so that a state has its full size after 2,400 events."""
TURNS = 10
"""Calls of a session, each reported on at once."""


class Partitions:
    """Sessions folded, one partition a task."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __call__(self, number: int, tell: object) -> tuple[int, float]:
        tally = fold_sessions(self.plan, number, lambda _: None)
        return tally.num_events, psutil.Process().memory_info().rss / 1e6


def events_of(number: int, count: int) -> list[Event]:
    """Calls of 500 tokens, each with its report; sessions are named by their partition."""
    whole = template()
    events: list[Event] = [a_configuration(streams=WINDOWS)]
    for at in range(count // 2):
        session = Session(f"p{number}-{at // TURNS}")
        route = route_of_session(SCENARIO, session)
        made_us = START_US + 2 * at * GAP_US
        receipt = receipt_at(0, route=route, made_us=made_us)
        call = replace(whole, receipt=receipt, route=route, session=session)
        events += [call, a_report(f"r{number}-{at}", receipt, route=route)]
    return events


def spooled(plan: Plan, count: int) -> None:
    for number in range(PARTITIONS):
        with SpoolWriter(plan.input_of(Place(INTERACTIONS, number))) as spool:
            for offset, event in enumerate(events_of(number, count)):
                spool.append(Spooled(offset, START_US + offset * GAP_US, key_of(event), encode(event)))
    with SpoolWriter(plan.input_of(Place(EXPERIENCE, 0))):
        pass


def pure_rate(count: int) -> float:
    """The fold alone, of the same events."""
    log: list[Timed] = placed(events_of(0, count))
    by_offset = {timed.offset: timed for timed in log}
    return len(log) / min(run(a_state(), log, by_offset) for _ in range(3))


def main() -> None:
    """Fold a third of the events, then all of them: one partition here, then all side by side."""
    gc.set_threshold(*GC_THRESHOLDS)
    total = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    pure = pure_rate(total // PARTITIONS // 3)
    say("pure fold", events_per_s=round(pure))
    for count in (total // 3, total):
        with TemporaryDirectory() as folder:
            plan = Plan(
                work=Path(folder),
                out=Path(folder) / "one",
                num_interactions=PARTITIONS,
                num_experience=1,
                facts=Facts(live_batches=frozenset()),
                load_recipe=load,
            )
            spooled(plan, count // PARTITIONS)
            one_partition(plan, pure)
            side_by_side(replace(plan, out=Path(folder) / "all"))


def one_partition(plan: Plan, pure: float) -> None:
    began_s = process_time()
    (events, _) = Partitions(plan)(0, None)
    rate = events / (process_time() - began_s)
    say("one partition", events=events, events_per_s=round(rate), of_the_pure_fold=round(rate / pure, 2))


def side_by_side(plan: Plan) -> None:
    began_s = monotonic()
    with Crew(PARTITIONS) as crew:
        done = crew.do(Partitions(plan), range(PARTITIONS), size=SMALL_RECORDS, tell=_quiet)
    events = sum(events for events, _ in done)
    say(
        "partitions side by side, by the clock, with the start of their processes",
        events=events,
        events_per_s=round(events / (monotonic() - began_s)),
        megabytes=round(max(megabytes for _, megabytes in done)),
    )


def _quiet(done: int) -> None:
    """Show nothing."""


def say(what: str, **figures: float) -> None:
    sys.stdout.write(json.dumps({"bench": what, **figures}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
