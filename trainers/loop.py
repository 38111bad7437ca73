"""Shell: the trainer: each sealed batch ends in a candidate or a failure, exactly once, whatever dies when.

The order is the correctness: step, tensors, pointer, export, pointer with the content's name, event. Killed
before the first pointer, the batch is read again and gives the same bytes; killed after it, the result is
exported and announced again, under the same ids. Nothing is trained on what another batch left half done.

Next: trainers/batch.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from schemas.errors import RejectedError
from schemas.events import CandidateTrained, TrainingFailed
from schemas.ids import ScenarioName
from trainers.base import Bases, bring
from trainers.batch import Batch, check
from trainers.checkpoint import Checkpoints
from trainers.export import Exports
from trainers.ranks import Ranks
from trainers.results import candidate_of, failed_of, failure_of, kept_of, trained_of
from trainers.state import Failed, State, after_failure, after_step, steps_of
from trainers.step import Learner, StepLimits, train

HEARTBEAT_S = 1.0
"""Waiting ranks meet this often, so that a wait of hours is no collective of hours."""
Announcement = CandidateTrained | TrainingFailed

_log = structlog.get_logger()


class Log(Protocol):
    """What rank 0 sees of the log."""

    def next_batch(self, wait_s: float) -> Batch | None:
        """Give the next batch, or None after the wait. Raises ConflictError when the log was truncated."""

    def announce(self, event: Announcement) -> None:
        """Begin to write an event."""

    def is_announced(self, wait_s: float) -> bool:
        """Whether that event is in the log by now; waits for it a while."""


@dataclass(slots=True, kw_only=True)
class Trainer:
    """One scenario's trainer on one rank."""

    scenario: ScenarioName
    """Whose batches."""
    recipe: str
    """Dotted path of the recipe that they must be of."""
    ranks: Ranks
    """This process among the others."""
    build: Callable[[], Learner]
    """Makes a learner on the base model."""
    bases: Bases
    """Where weights come from."""
    checkpoints: Checkpoints
    """Where tensors are kept."""
    exports: Exports
    """Where candidates are written."""
    log: Log
    """Used on rank 0 only."""
    limits: StepLimits
    """Of a step."""
    num_newest: int
    """Checkpoints kept, beside the base's."""
    now_us: Callable[[], int]
    """Microseconds UTC."""
    is_stopping: Callable[[], bool]
    """Whether somebody asked us to stop; heard on rank 0."""
    observe: Callable[[Announcement], None]
    """Told of each event once it is in the log, on rank 0: metrics."""
    passed: Callable[[str], None]
    """Told of each point of the order, on every rank: tests kill there."""


def run(trainer: Trainer, learner: Learner, state: State) -> None:
    """Go on where the pointer says, until asked to stop."""
    if state.held is not None:
        trainer.checkpoints.load(learner, state.held, num_steps=steps_of(state))
    state = publish(trainer, learner, state)
    while (batch := next_batch(trainer)) is not None:
        try:
            state = learn(trainer, learner, state, batch)
        except RejectedError as error:
            learner, state = give_up(trainer, learner, state, batch, error)
        trainer.passed("pointed")
        state = publish(trainer, learner, state)


def next_batch(trainer: Trainer) -> Batch | None:
    """Wait for a batch, on all ranks; None when asked to stop."""
    while True:
        stops, batch = trainer.ranks.on_first(
            lambda: (trainer.is_stopping(), trainer.log.next_batch(HEARTBEAT_S))
        )
        if stops or batch is not None:
            return None if stops else batch


def learn(trainer: Trainer, learner: Learner, state: State, batch: Batch) -> State:
    """Train on a batch and keep what came of it. Raises RejectedError on all ranks."""
    sealed = batch.sealed
    check(batch, recipe=trainer.recipe, vocab_size=learner.policy.model.config.vocab_size)
    trainer.checkpoints.refuse_if_it_was_too_large(sealed.batch_id)
    optimizer = bring(learner, state, sealed, trainer.bases)
    with trainer.checkpoints.noting_what_is_too_large(sealed.batch_id):
        metrics = train(learner, batch, trainer.ranks, trainer.limits)
    trainer.passed("stepped")
    result = trained_of(
        sealed,
        kind=trainer.exports.kind,
        step=learner.num_steps,
        metrics=metrics,
        optimizer=optimizer,
        is_publishable=learner.objective.trains_policy(sealed.batch_seq),
        at_us=trainer.now_us(),
    )
    new = kept_of(result)
    trainer.checkpoints.save(learner, new.folder)
    trainer.passed("saved")
    state = trainer.ranks.share(after_step(state, new, batch, result, num_newest=trainer.num_newest))
    trainer.checkpoints.point(state)
    return state


def give_up(
    trainer: Trainer, learner: Learner, state: State, batch: Batch, error: RejectedError
) -> tuple[Learner, State]:
    """Go back to the tensors from before the batch, and on behind it."""
    _log.warning("batch_failed", batch_id=batch.sealed.batch_id, reason=error.reason, detail=str(error))
    if state.held is None:
        learner = trainer.build()
    else:
        trainer.checkpoints.load(learner, state.held, num_steps=steps_of(state))
    result = failed_of(batch.sealed, reason=error.reason, detail=str(error), at_us=trainer.now_us())
    state = trainer.ranks.share(after_failure(state, batch, result))
    trainer.checkpoints.point(state)
    return learner, state


def publish(trainer: Trainer, learner: Learner, state: State) -> State:
    """Export and announce the result that the pointer holds; again is harmless."""
    result = state.result
    if result is None:
        return state
    if isinstance(result, Failed):
        _announce(trainer, failure_of(state.scenario, result))
        return state
    exported = None
    if result.is_publishable:
        exported = trainer.exports.write(learner, result)
        state = state.with_content(exported.content_sha256)
        trainer.checkpoints.point(state)
    trainer.passed("exported")
    _announce(trainer, candidate_of(state.scenario, result, exported))
    return state


def _announce(trainer: Trainer, event: Announcement) -> None:
    """Wait until an event is in the log, all ranks together; asked to stop, leave it to the next start."""
    trainer.ranks.on_first(lambda: trainer.log.announce(event))
    is_there = stops = False
    while not is_there and not stops:
        is_there, stops = trainer.ranks.on_first(
            lambda: (trainer.log.is_announced(HEARTBEAT_S), trainer.is_stopping())
        )
    trainer.passed("announced")
    if is_there and trainer.ranks.is_first:
        trainer.observe(event)
