"""Pure: the folds over a log that is there already, and the trainer's part played where nobody trained.

The very steps that the workers take: a replay adds no rule to them. What it adds is who ends a batch that was
never sealed live: the next release that the log tells of, or nobody, and then it ends at once (STREAMS 29).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from schemas.events import (
    BatchSealed,
    BatchSettled,
    BatchState,
    ErasureRequested,
    ReleaseAdvanced,
)
from schemas.ids import BatchId, ReleaseId, ScenarioName
from streams import batch, session
from streams.batch_entries import NEVER_US, Erased
from streams.batch_state import BatchState as BatchMemory
from streams.entries import Forgotten
from streams.outputs import Emitted, Fetched, Output, Timed
from streams.session_state import SessionState

Told = tuple[Timed, Sequence[Output]]
"""An event, and what the fold said to it."""

DRAIN_EVENTS = 1_000
"""After so many the changed entries are put to rest, as a worker does: at rest they are small."""
SYNTHETIC_OFFSET = -1
"""Of an event that no log holds: nothing is read back from there."""


def refold_sessions(
    state: SessionState, log: Iterable[Timed], fetched: Fetched, erasures: Sequence[ErasureRequested] = ()
) -> Iterator[Told]:
    """Fold `reef.interactions.v1` again; what is erased anywhere is so from the start (STREAMS 30)."""
    _erase_sessions(state, erasures)
    for number, timed in enumerate(log):
        yield timed, session.step(state, timed, fetched)[1]
        if number % DRAIN_EVENTS == 0:
            state.changes()


@dataclass(kw_only=True)
class Trainer:
    """Ends the batches that only the replay knows, one of each scenario at a time."""

    releases_left: Counter[ScenarioName] = field(default_factory=Counter)
    """How often the head will move yet."""
    live_batches: Collection[BatchId] | None = ()
    """Their ends are in the log; None for all."""
    _in_flight: dict[ScenarioName, BatchId] = field(init=False, default_factory=dict)
    _head_seq: dict[ScenarioName, int] = field(init=False, default_factory=dict)

    def sees(self, outputs: Sequence[Output]) -> None:
        """Look for a batch that was sealed."""
        if self.live_batches is None:
            return
        for output in outputs:
            if isinstance(output, Emitted) and isinstance(output.event, BatchSealed):
                seal = output.event
                if seal.batch_id not in self.live_batches:
                    self._in_flight[seal.scenario] = seal.batch_id

    def ends_with(self, event: ReleaseAdvanced) -> BatchSettled | None:
        """End what was in flight when the head moved."""
        name = event.scenario
        if event.release_seq <= self._head_seq.get(name, -1):
            return None
        self._head_seq[name] = event.release_seq
        self.releases_left[name] -= 1
        return self._settled(name, event.advanced_at_us, event.release_id)

    def ends_at_once(self, at_us: int) -> BatchSettled | None:
        """End a batch that no later release will end."""
        for name in sorted(self._in_flight):
            if self.releases_left[name] <= 0:
                return self._settled(name, at_us, None)
        return None

    def _settled(self, name: ScenarioName, at_us: int, release_id: ReleaseId | None) -> BatchSettled | None:
        batch_id = self._in_flight.pop(name, None)
        if batch_id is None:
            return None
        return BatchSettled(
            scenario=name,
            batch_id=batch_id,
            state=BatchState.TRAINED,
            candidate_id=None,
            release_id=release_id,
            settled_at_us=at_us,
        )


def refold_batches(
    state: BatchMemory,
    log: Iterable[Timed],
    fetched: Fetched,
    trainer: Trainer,
    erasures: Sequence[ErasureRequested] = (),
) -> Iterator[Told]:
    """Fold `reef.experience.v1`, or what would have stood there, with the trainer's ends where they fall."""
    _erase_batches(state, erasures)

    def take(timed: Timed) -> Told:
        outputs = batch.step(state, timed, fetched)[1]
        trainer.sees(outputs)
        return timed, outputs

    for number, timed in enumerate(log):
        ended = trainer.ends_with(timed.event) if isinstance(timed.event, ReleaseAdvanced) else None
        yield take(timed)
        if ended is not None:
            yield take(_synthetic(ended, timed))
        while (ended := trainer.ends_at_once(timed.time_us)) is not None:
            yield take(_synthetic(ended, timed))
        if number % DRAIN_EVENTS == 0:
            state.changes()


def _synthetic(event: BatchSettled, cause: Timed) -> Timed:
    return Timed(
        event=event,
        time_us=cause.time_us,
        partition=cause.partition,
        offset=SYNTHETIC_OFFSET,
        key=event.scenario.encode(),
    )


def _erase_sessions(state: SessionState, erasures: Sequence[ErasureRequested]) -> None:
    for event in erasures:
        for name in session.erased_names(event):
            state.forgotten.put(name, Forgotten(0, NEVER_US))
    state.journal.keep()


def _erase_batches(state: BatchMemory, erasures: Sequence[ErasureRequested]) -> None:
    for event in erasures:
        for name in batch.erased_names(event):
            state.put_erased(name, Erased(offset=SYNTHETIC_OFFSET, deadline_us=NEVER_US))
    state.journal.keep()
