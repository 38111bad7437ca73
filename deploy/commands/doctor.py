"""Shell: `reef doctor`: everything this machine must have, and how to get what is missing."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from deploy.checks import Outcome, Verdict, judge_machine
from deploy.configuration import ConfigFile, read_configuration
from deploy.machine import look_at_machine
from deploy.paper import paper
from deploy.settings import read_cache_dir

AsJson = Annotated[bool, typer.Option("--json", help="write a JSON list of {name, outcome, found, advice}")]

_STYLES: dict[Outcome, str] = {
    "ok": "green",
    "warning": "yellow",
    "missing": "red",
    "unusable": "red",
    "taken": "red",
}
_OUTCOME_WIDTH = max(map(len, _STYLES)) + 1


def doctor(context: typer.Context, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check everything that is needed here, and say what to run for what is missing.

    Any setting may follow as --section.key value. Exit status 1 when something needed is missing,
    unusable or taken.
    """
    settings = read_configuration(config, context.args).settings
    verdicts = judge_machine(look_at_machine(settings, read_cache_dir()))
    if as_json:
        typer.echo(json.dumps([asdict(verdict) for verdict in verdicts]))
    else:
        _show(verdicts)
    if any(verdict.is_obstacle for verdict in verdicts):
        raise typer.Exit(1)


def _show(verdicts: Sequence[Verdict]) -> None:
    console = paper()
    width = max(len(verdict.name) for verdict in verdicts)
    for verdict in verdicts:
        line = Text(f"{verdict.outcome:{_OUTCOME_WIDTH}}", style=_STYLES[verdict.outcome])
        line.append(f"{verdict.name:{width}}  {verdict.found}", style="default")
        console.print(line)
        if verdict.advice:
            console.print(f"{'':{_OUTCOME_WIDTH}}{'':{width}}  → {verdict.advice}")
