"""Replays of logs that a test wrote as lists: spools as a fetch leaves them, then the two stages."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.codec import decode, encode
from schemas.events import Event, OutcomeSettled
from schemas.records import Place
from schemas.topics import EXPERIENCE, INTERACTIONS, OUTCOMES, TRAINING
from streams.outputs import Timed
from streams.replay.plan import BATCHES, SESSIONS, Facts, Plan, Tally
from streams.replay.spool import Spool, Spooled, SpoolWriter
from streams.replay.stages import fold_batches, fold_sessions
from streams.replay.tables import digest_of
from tests.unit.streams.recipes import load

ALL = frozenset({EXPERIENCE, TRAINING, OUTCOMES})


@dataclass
class Replayed:
    """What came of a replay."""

    plan: Plan
    tally: Tally

    def said(self, stage: str, topic: str) -> list[Event]:
        """Everything a stage said to a topic, partition by partition."""
        found: list[Event] = []
        count = self.plan.num_interactions if stage == SESSIONS else self.plan.num_experience
        for number in range(count):
            for place in sorted(self.plan.work.glob(f"said-{stage}-{number}-{topic}-*.spool")):
                with Spool(place) as spool:
                    found += [decode(record.value) for record in spool]
        return found

    def outcomes(self) -> list[OutcomeSettled]:
        said = [*self.said(SESSIONS, OUTCOMES), *self.said(BATCHES, OUTCOMES)]
        return [each for each in said if isinstance(each, OutcomeSettled)]

    def of(self, stage: str, topic: str, kind: type[Any]) -> list[Any]:
        return [event for event in self.said(stage, topic) if isinstance(event, kind)]

    def digests(self) -> dict[str, str]:
        assert self.plan.out is not None
        files = sorted(self.plan.out.rglob("*.parquet"))
        return {str(path.relative_to(self.plan.out)): digest_of(path) for path in files}


def replayed(
    folder: Path,
    calls: Sequence[Sequence[Timed]],
    experience: Sequence[Sequence[Timed]] = ((),),
    **changes: Any,
) -> Replayed:
    """Replay these partitions, in the order of their numbers."""
    work = folder / "work"
    work.mkdir(parents=True)
    fields: dict[str, Any] = {
        "work": work,
        "num_interactions": len(calls),
        "num_experience": len(experience),
        "facts": Facts(live_batches=frozenset()),
        "kept": ALL,
        "load_recipe": load,
    }
    plan = Plan(**(fields | changes))
    for topic, partitions in ((INTERACTIONS, calls), (EXPERIENCE, experience)):
        for number, log in enumerate(partitions):
            write_spool(plan.input_of(Place(topic, number)), log)
    return Replayed(plan, folded(plan))


def folded(plan: Plan) -> Tally:
    tally = Tally()
    for number in range(plan.num_interactions):
        tally.add(fold_sessions(plan, number, lambda _: None))
    for number in range(plan.num_experience):
        tally.add(fold_batches(plan, number, lambda _: None))
    return tally


def write_spool(path: Path, log: Sequence[Timed]) -> None:
    with SpoolWriter(path) as spool:
        for timed in log:
            spool.append(Spooled(timed.offset, timed.time_us, timed.key, encode(timed.event)))


def counted(events: Sequence[Event]) -> Counter[bytes]:
    return Counter(map(encode, events))
