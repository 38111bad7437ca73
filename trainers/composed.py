"""Shell: one rank of a trainer, put together: the only place that names concrete adapters.

Not the loop (trainers/loop.py), and not the starting of several ranks (trainers/launch.py).
"""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event as Flag
from time import time_ns
from types import FrameType

import torch
from transformers.utils.logging import disable_progress_bar

from schemas.artifact_fetch import FetchedArtifacts
from schemas.blobs import open_blob_store
from schemas.errors import RejectedError
from schemas.recipe import load_recipe
from schemas.topics import TRAINING
from trainers.base import Bases, untrained_of
from trainers.build import Blueprint, build
from trainers.checkpoint import Checkpoints
from trainers.cursor import Cursor, LogAccess
from trainers.export import Exports
from trainers.lock import only_one
from trainers.loop import Log, Trainer, run
from trainers.metrics import TrainerMetrics
from trainers.ranks import Ranks, open_ranks
from trainers.replayed import ReplayedLog
from trainers.settings import RankFacts, TrainerSettings, device_for, threads_for
from trainers.state import State, first_state
from trainers.step import Learner, StepLimits

CPU_NICENESS = 15
"""Where a trainer shares the processor with an engine, answers come first."""


def run_rank(settings: TrainerSettings, facts: RankFacts) -> None:
    """Train until asked to stop. Raises RejectedError on a configuration that trains nothing."""
    blueprint = blueprint_of(settings)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    is_stopping = stop_when(is_child=facts.rank is not None)
    with ExitStack() as stack:
        if not facts.rank:
            stack.enter_context(only_one(settings.folder))
        device = device_for(settings.training, facts.local_rank)
        if device.type == "cpu":
            os.nice(CPU_NICENESS)
        ranks = open_ranks(
            rank=facts.rank or 0,
            size=facts.world_size,
            rendezvous=facts.rendezvous,
            device=device,
            timeout_s=settings.training.collective_timeout_s,
        )
        stack.callback(ranks.close)
        checkpoints = Checkpoints(settings.folder, ranks)
        cursor = cursor_of(settings)
        if ranks.is_first:
            stack.enter_context(cursor)
        state = begin(settings, ranks, checkpoints.read_pointer(), cursor)
        log: Log = cursor
        if settings.replay is not None:
            end = ranks.on_first(lambda: replay_end(cursor, settings))
            log = replayed = ReplayedLog(cursor, settings.folder, state, end=end)
            is_stopping = either(is_stopping, replayed.is_over)
        learner = build(blueprint, ranks)
        trainer = _trainer(settings, blueprint, ranks, checkpoints, log, learner, is_stopping)
        run(trainer, learner, state)


def blueprint_of(settings: TrainerSettings) -> Blueprint:
    """Say what is trained. Raises RejectedError when the recipe trains no weights."""
    objective = load_recipe(settings.scenario.recipe).objective
    if not objective:
        raise RejectedError(
            f"expected a recipe that trains weights, got {settings.scenario.recipe}: it needs no trainer",
            reason="configuration",
        )
    return Blueprint(
        model_folder=settings.model_folder,
        objective=objective,
        options=settings.scenario.options,
        lora=settings.lora,
        training=settings.training,
    )


def begin(settings: TrainerSettings, ranks: Ranks, state: State | None, cursor: Cursor) -> State:
    """Settle threads and seeds, and let rank 0 begin to read where the pointer says."""
    threads = threads_for(settings.training, state.threads if state else None)
    torch.set_num_threads(threads)
    torch.manual_seed(settings.training.seed)
    if state is None:
        state = first_state(
            settings.scenario.name,
            offset=ranks.on_first(lambda: cursor.bounds()[0]),
            threads=threads,
            ranks=ranks.size,
        )
    state = state.model_copy(update={"threads": threads, "ranks": ranks.size})
    offset = state.offset
    ranks.on_first(lambda: cursor.begin(offset))
    return state


def cursor_of(settings: TrainerSettings) -> Cursor:
    """Give the way to the batches."""
    topic = TRAINING if settings.replay is None else settings.replay.topic
    return Cursor(log_access(settings), settings.scenario.name, topic=topic)


def replay_end(cursor: Cursor, settings: TrainerSettings) -> int:
    """Give where a replay's batches end. Raises RejectedError when it has none."""
    first, end = cursor.bounds()
    if settings.replay is not None and first == end:
        raise RejectedError(
            f"expected batches of {settings.scenario.name} in {settings.replay.topic}, got none: replay a "
            "range in which batches were sealed",
            reason="configuration",
        )
    return end


def either(one: Callable[[], bool], other: Callable[[], bool]) -> Callable[[], bool]:
    """Hold when one of two does."""
    return lambda: one() or other()


def log_access(settings: TrainerSettings) -> LogAccess:
    """Say where the log and its large fields are."""
    return LogAccess(kafka=settings.kafka, blobs=open_blob_store(settings.blobs_url))


def stop_when(*, is_child: bool) -> Callable[[], bool]:
    """Hear the first SIGTERM or SIGINT as a wish, the second as an end; a child stops with its parent."""
    wish = Flag()
    parent = os.getppid()

    def hear(number: int, frame: FrameType | None) -> None:
        if wish.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        wish.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hear)
    return lambda: wish.is_set() or (is_child and os.getppid() != parent)


def _trainer(
    settings: TrainerSettings,
    blueprint: Blueprint,
    ranks: Ranks,
    checkpoints: Checkpoints,
    log: Log,
    learner: Learner,
    is_stopping: Callable[[], bool],
) -> Trainer:
    metrics = TrainerMetrics(settings.scenario.name)
    if ranks.is_first and settings.replay is None:
        metrics.serve(settings.metrics_port)
    training = settings.training
    return Trainer(
        scenario=settings.scenario.name,
        recipe=settings.scenario.recipe,
        ranks=ranks,
        build=lambda: build(blueprint, ranks),
        bases=Bases(
            checkpoints=checkpoints,
            artifacts=FetchedArtifacts(settings.artifacts_folder, settings.lakefs),
            ranks=ranks,
            lora=blueprint.lora,
            untrained=untrained_of(learner, blueprint.lora),
        ),
        checkpoints=checkpoints,
        exports=Exports(settings.folder, ranks, model_folder=settings.model_folder, lora=blueprint.lora),
        log=log,
        limits=StepLimits(
            pack_tokens_max=training.pack_tokens_max, gradient_norm_max=training.gradient_norm_max
        ),
        num_newest=training.checkpoints_kept,
        now_us=lambda: time_ns() // 1000,
        is_stopping=is_stopping,
        observe=metrics.observe,
        passed=metrics.passed,
    )
