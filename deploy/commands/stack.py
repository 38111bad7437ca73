"""Shell: `reef stack up|down|status`: the embedded dependencies without the services."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deploy.background import end_supervisor, join_supervisor, start_supervisor
from deploy.configuration import OVERRIDES_ALLOWED, ConfigFile, read_configuration
from deploy.paper import paper
from deploy.progress import shown_step
from deploy.restarts import EMBEDDED
from deploy.settings import read_cache_dir
from deploy.stack import STACK_NAMES, Stack, compose_stack, prepare_stack
from deploy.stack_status import StackStatus, look_at_stack
from deploy.supervisor import Supervised, Supervisor
from schemas.logs import configure_logs
from schemas.settings import Settings

app = typer.Typer(
    help="Kafka, lakeFS and the engine on this machine, without the services.", no_args_is_help=True
)

Without = Annotated[
    list[str] | None,
    typer.Option("--without", help="leave one out: kafka, lakefs or engine; may be repeated"),
]
Foreground = Annotated[
    bool, typer.Option("--foreground", help="stay, show the log, and stop everything at Ctrl-C")
]
AsJson = Annotated[bool, typer.Option("--json", help="write one JSON object")]


@app.command(context_settings=OVERRIDES_ALLOWED)
def up(
    context: typer.Context,
    config: ConfigFile = None,
    without: Without = None,
    foreground: Foreground = False,
    as_json: AsJson = False,
) -> None:
    """Start what the configuration calls embedded, and come back when all of it answers.

    Any setting may follow as --section.key value. Starting what runs already changes nothing.
    """
    settings = read_configuration(config, context.args).settings
    left_out = _known(without or [])
    stack = compose_stack(settings, cache_dir=read_cache_dir(), without=left_out)
    if foreground:
        prepare_stack(stack)
        _supervise(settings, stack)
        return
    state_dir = settings.reef.state_dir.absolute()
    names = [program.daemon.launch.name for program in stack.programs]
    if not join_supervisor(state_dir, names):
        prepare_stack(stack)
        words = [word for name in left_out for word in ("--without", name)]
        file = [] if config is None else ["--config", str(config)]
        start_supervisor(state_dir, ["stack", "up", "--foreground", *file, *words, *context.args])
    _tell(look_at_stack(settings), as_json=as_json)


@app.command(context_settings=OVERRIDES_ALLOWED)
def down(context: typer.Context, config: ConfigFile = None) -> None:
    """Stop everything in order, also what a killed supervisor left; leaves no process."""
    settings = read_configuration(config, context.args).settings
    with shown_step("stopping"):
        state_dir = settings.reef.state_dir.absolute()
        num_ended = end_supervisor(state_dir)
    said = "stopped" if num_ended else f"nothing was running that was started with state in {state_dir}"
    Console(stderr=True).print(said, highlight=False, soft_wrap=True)


@app.command(context_settings=OVERRIDES_ALLOWED)
def status(context: typer.Context, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Ask each dependency whether it answers."""
    settings = read_configuration(config, context.args).settings
    _tell(look_at_stack(settings), as_json=as_json)


def _known(names: list[str]) -> list[str]:
    unknown = sorted(set(names) - set(STACK_NAMES))
    if unknown:
        raise typer.BadParameter(f"expected one of {', '.join(STACK_NAMES)}, got {unknown[0]!r}")
    return names


def _supervise(settings: Settings, stack: Stack) -> None:
    logs = settings.observability
    configure_logs(service="supervisor", log_format=logs.log_format, level=logs.log_level)
    programs = [Supervised(program=program, policy=EMBEDDED) for program in stack.programs]
    Supervisor([programs], state_dir=settings.reef.state_dir.absolute()).run()


def _tell(found: StackStatus, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _show(found)


def _show(found: StackStatus) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("", "state", "address", "pid", "model"):
        table.add_column(title)
    kafka, lakefs, engine = found["kafka"], found["lakefs"], found["engine"]
    table.add_row("kafka", _state(kafka["ready"]), kafka["bootstrap"], _pid(kafka["pid"]), "")
    table.add_row("lakefs", _state(lakefs["ready"]), lakefs["url"], _pid(lakefs["pid"]), "")
    table.add_row("engine", _state(engine["ready"]), engine["url"], _pid(engine["pid"]), engine["model"])
    console = paper()
    console.print(table)
    if lakefs["credentials_file"] and Path(lakefs["credentials_file"]).is_file():
        console.print(f"lakeFS keys: {lakefs['credentials_file']}")


def _state(ready: bool) -> Text:
    return Text("ready", style="green") if ready else Text("not ready", style="yellow")


def _pid(pid: int | None) -> str:
    return "-" if pid is None else str(pid)
