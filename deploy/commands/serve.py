"""Shell: `reef serve`: everything of one deployment on one machine, under one supervisor."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deploy.background import join_supervisor, require_no_other, start_supervisor
from deploy.configuration import ConfigFile, read_configuration
from deploy.origin import Origin, origin_of
from deploy.restarts import EMBEDDED, OWN_SERVICE
from deploy.services import Deployment, compose_services, gateway_url
from deploy.settings import read_cache_dir
from deploy.stack import Stack, compose_stack, prepare_stack
from deploy.supervisor import Supervised, Supervisor
from schemas.logs import configure_logs
from schemas.settings import Settings
from schemas.settings.printed import printed

PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="show every value and where it came from, and do nothing else")
]
Background = Annotated[
    bool, typer.Option("--background", help="come back when all is ready; `reef stack down` stops it")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Everything that one configuration runs here."""

    settings: Settings
    """The configuration, read."""
    words: Sequence[str]
    """The configuration as it was typed."""
    stack: Stack
    """Kafka, lakeFS and the engine, as far as they are embedded."""
    origin: Origin
    """The configuration's name, for whoever finds it running."""

    def stages(self) -> list[list[Supervised]]:
        """Give the programs in starting order: dependencies, then services."""
        services = compose_services(Deployment(settings=self.settings, words=self.words))
        dependencies = [Supervised(program=one, policy=EMBEDDED) for one in self.stack.programs]
        return [
            dependencies,
            *[[Supervised(program=s, policy=OWN_SERVICE) for s in stage] for stage in services],
        ]


def serve(
    context: typer.Context,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    background: Background = False,
) -> None:
    """Run the whole system until Ctrl-C. Any setting may follow as --section.key value."""
    loaded = read_configuration(config, context.args)
    if print_config:
        typer.echo(printed(loaded.settings, loaded.sources), nl=False)
        return
    serving = serving_of(loaded.settings, config, context.args)
    if background:
        serve_in_background(serving)
    else:
        serve_here(serving)


def serving_of(settings: Settings, config: Path | None, overrides: Sequence[str]) -> Serving:
    """Name everything; nothing is started."""
    file = [] if config is None else ["--config", str(config)]
    stack = compose_stack(settings, cache_dir=read_cache_dir())
    origin = origin_of(settings, None if config is None else config.absolute())
    return Serving(settings=settings, words=(*file, *overrides), stack=stack, origin=origin)


def serve_in_background(serving: Serving) -> None:
    """Start a supervisor that outlives us, unless one runs already, and wait until all is ready.

    Raises ConflictError when what runs already was made from another configuration.
    """
    state_dir = serving.settings.reef.state_dir.absolute()
    names = [one.name for stage in serving.stages() for one in stage]
    if not join_supervisor(state_dir, names, origin=serving.origin):
        prepare_stack(serving.stack)
        start_supervisor(state_dir, ["serve", *serving.words])
    _say(serving.settings)


def serve_here(serving: Serving) -> None:
    """Be the supervisor."""
    state_dir = serving.settings.reef.state_dir.absolute()
    require_no_other(state_dir, serving.origin)
    prepare_stack(serving.stack)
    logs = serving.settings.observability
    configure_logs(service="supervisor", log_format=logs.log_format, level=logs.log_level)
    _say(serving.settings)
    Supervisor(serving.stages(), state_dir=state_dir, origin=serving.origin).run()


def _say(settings: Settings) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"gateway: {gateway_url(settings)}, logs: {settings.reef.state_dir / 'logs'}")
