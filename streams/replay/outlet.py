"""Shell: where a stage's statements go: into tables, and into spools for whoever reads them next.

Nothing here reaches Kafka.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from schemas.codec import encode
from schemas.partitions import partition_of
from schemas.records import Place
from schemas.topics import EXPERIENCE, key_of
from streams.outputs import Emitted, Output, Refused, Timed
from streams.replay.plan import Plan, Tally
from streams.replay.rows import BEFORE_RANGE, Row
from streams.replay.spool import Spooled, SpoolWriter
from streams.replay.tables import Tables

REFUSED = "refused: "
BEFORE = "before_range"


class Outlet:
    """Of one partition of one stage; used inside `with`."""

    def __init__(self, plan: Plan, stage: str, number: int) -> None:
        self._plan, self._stage, self._number = plan, stage, number
        self._tables = Tables(plan.out, f"{stage}-{number:05}")
        self._spools: dict[Place, SpoolWriter] = {}
        self._open = ExitStack()
        self.tally = Tally()
        """What was said so far."""

    def __enter__(self) -> Self:
        self._open.enter_context(self._tables)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def say(self, cause: Timed, now_us: int, outputs: Sequence[Output]) -> None:
        """Write down what a step said."""
        self.tally.num_events += 1
        for output in outputs:
            if isinstance(output, Refused):
                self.tally.counts[REFUSED + output.error.reason] += 1
            elif isinstance(output, Emitted):
                self.tally.counts[type(output.event).__name__] += 1
                self._tables.add(output.event)
                if output.topic in self._plan.kept:
                    self._spool(output, cause.offset, now_us)

    def note_before_range(self, row: Row) -> None:
        """List what refers to before the range."""
        self.tally.counts[BEFORE] += 1
        self._tables.add_row(BEFORE_RANGE, row)

    def _spool(self, output: Emitted, offset: int, now_us: int) -> None:
        key = key_of(output.event)
        is_for_folds = output.topic == EXPERIENCE
        place = Place(output.topic, partition_of(key, self._plan.num_experience) if is_for_folds else 0)
        spool = self._spools.get(place)
        if spool is None:
            path = self._plan.said_of(self._stage, self._number, place)
            spool = self._spools[place] = self._open.enter_context(SpoolWriter(path))
        spool.append(Spooled(offset, now_us, key, encode(output.event)))
