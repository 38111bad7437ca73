"""Shell: which embedded programs a configuration asks for, made ready to be supervised.

The one place that turns settings into Kafka, lakeFS and the engine.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.engine import Engine, EngineOptions
from deploy.embedded.engine_environment import Device, find_device
from deploy.embedded.kafka import Kafka, KafkaOptions
from deploy.embedded.lakefs import Lakefs, LakefsOptions
from deploy.progress import shown_step
from schemas.settings import Settings

STACK_NAMES = ("kafka", "lakefs", "engine")
"""Starting order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The embedded programs; None where the configuration names an address, or it was left out."""

    kafka: Kafka | None
    """The log."""
    lakefs: Lakefs | None
    """The chain of releases."""
    engine: Engine | None
    """The model that answers."""

    @property
    def programs(self) -> tuple[Kafka | Lakefs | Engine, ...]:
        """Those that run here, in starting order."""
        every = (self.kafka, self.lakefs, self.engine)
        return tuple(program for program in every if program is not None)


def compose_stack(settings: Settings, *, cache_dir: Path, without: Collection[str] = ()) -> Stack:
    """Name the programs; nothing is started."""
    state_dir = settings.reef.state_dir.absolute()
    kafka = KafkaOptions(
        state_dir=state_dir,
        cache_dir=cache_dir,
        port=settings.kafka.port,
        is_durable=settings.reef.durability == "disk",
    )
    engine = EngineOptions(
        state_dir=state_dir,
        cache_dir=cache_dir,
        port=settings.inference.port,
        model=settings.inference.model,
        device=engine_device(settings),
        num_adapters=num_adapters(settings),
        adapter_rank=settings.training.lora_rank,
        extra_arguments=settings.inference.engine_args,
    )
    lakefs = LakefsOptions(state_dir=state_dir, cache_dir=cache_dir, port=settings.lakefs.port)
    return Stack(
        kafka=Kafka(kafka) if settings.kafka.is_embedded and "kafka" not in without else None,
        lakefs=Lakefs(lakefs) if settings.lakefs.is_embedded and "lakefs" not in without else None,
        engine=Engine(engine) if settings.inference.is_embedded and "engine" not in without else None,
    )


def prepare_stack(stack: Stack) -> None:
    """Fetch and build what its programs need and do not have yet, and show that it goes on."""
    for program in stack.programs:
        with shown_step(f"preparing {program.daemon.launch.name} (minutes the first time)"):
            program.prepare()


def num_adapters(settings: Settings) -> int:
    """Count the scenarios that train an adapter."""
    default = settings.training.target
    return sum((one.target or default) == "lora" for one in settings.reef.scenarios)


def engine_device(settings: Settings) -> Device:
    """Say where the embedded engine runs."""
    given = settings.inference.device
    return find_device() if given == "auto" else given
