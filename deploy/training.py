"""Shell: one scenario's trainer, put together from its settings. `reef trainer` runs it.

Under torchrun, or as a child of itself, it is one rank; otherwise it starts the ranks, unless one is all.
"""

from dataclasses import replace
from pathlib import Path
from time import time_ns

from rich.console import Console

from deploy.beginning import begin_service
from deploy.embedded.model import model_folder
from deploy.lakefs_access import find_lakefs_access
from deploy.settings import read_cache_dir
from schemas.bus import kafka_access
from schemas.errors import RejectedError
from schemas.events import TrainingTarget
from schemas.ids import BatchId
from schemas.settings import Settings
from schemas.settings.scenarios import Scenario, scenarios_of
from schemas.settings.secrets import kafka_login
from schemas.settings.settings import process_environment
from schemas.topics import TRAINING
from streams.replay.destination import replay_topic
from trainers.abandon import abandon
from trainers.composed import log_access, run_rank
from trainers.cursor import Cursor
from trainers.launch import run_ranks, this_command
from trainers.settings import Replay, TrainerSettings, read_rank_facts

METRICS_PORT_OFFSET = 1
"""The release service has the first port, stream workers those behind."""


def train(settings: Settings, scenario: str | None, replay: Replay | None = None) -> int:
    """Be one rank, or start the ranks; give the exit status."""
    chosen = trained_scenario(settings, scenario)
    facts = read_rank_facts()
    if facts.rank is None and settings.training.ranks > 1:
        begin_service(settings, service="trainer", title="reef: trainers")
        return run_ranks(this_command(), settings.training.ranks)
    begin_service(settings, service="trainer", title=f"reef: trainer {facts.rank or 0}")
    run_rank(replace(trainer_settings(settings, chosen), replay=replay), facts)
    return 0


def replay_of(suffix: str, folder: Path) -> Replay:
    """Name what `reef replay --out-topics` wrote. Raises RejectedError."""
    return Replay(topic=replay_topic(TRAINING, suffix), folder=folder.absolute())


def abandon_batch(settings: Settings, scenario: str | None, batch_id: BatchId) -> None:
    """Give a batch up, so that the trainer goes on behind it."""
    begin_service(settings, service="trainer", title="reef: trainer abandon")
    _abandon(trainer_settings(settings, trained_scenario(settings, scenario)), batch_id)


def trained_scenario(settings: Settings, name: str | None) -> Scenario:
    """Choose the scenario to train: the named one, or the only one. Raises RejectedError."""
    trained = [one for one in scenarios_of(settings) if one.target is not TrainingTarget.NONE]
    found = [one for one in trained if name in (None, one.name)]
    if len(found) != 1:
        names = ", ".join(one.name for one in trained) or "none"
        raise RejectedError(
            f"expected one scenario to train, got {len(found)}: give --scenario one of: {names}",
            reason="configuration",
        )
    return found[0]


def trainer_settings(settings: Settings, scenario: Scenario) -> TrainerSettings:
    """Cut the trainer's piece out of the configuration, and find its model."""
    folder = model_folder(settings.inference.model, read_cache_dir(), wanted="the model to train")
    environ = process_environment()
    return TrainerSettings(
        scenario=scenario,
        training=settings.training,
        model_folder=folder,
        state_dir=settings.reef.state_dir.absolute(),
        kafka=kafka_access(settings.kafka, kafka_login(settings, environ)),
        blobs_url=settings.blobs_url,
        lakefs=find_lakefs_access(settings, environ),
        metrics_port=settings.observability.metrics_port + METRICS_PORT_OFFSET,
    )


def _abandon(settings: TrainerSettings, batch_id: BatchId) -> None:
    with Cursor(log_access(settings), settings.scenario.name) as cursor:
        state = abandon(settings.folder, cursor, settings.scenario.name, batch_id, now_us=time_ns() // 1000)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"batch {batch_id} is abandoned; the trainer goes on at offset {state.offset}")
