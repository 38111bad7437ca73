"""Shell: the command `reef`: a table of commands, and one place for errors.

Only the module of the command that is asked for is imported, so that help comes at once.
"""

import errno
import importlib
import importlib.metadata
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from schemas.errors import ReefError, words_of

EXIT_FAILED = 1
EXIT_WRONG_USAGE = 2
EXIT_INTERRUPTED = 130
"""What typer makes of Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command, or group of commands."""

    name: str
    """What is typed."""
    module: str
    """Where it is."""
    member: str
    """The typer.Typer of a group, or a function."""
    says: str
    """Its line in the help."""
    takes_settings: bool = False
    """Whether any `--section.key value` may follow (a function only; a group says so itself)."""


ENTRIES = (
    Entry(
        name="serve",
        module="deploy.commands.serve",
        member="serve",
        says="Run the whole system, or show its configuration.",
        takes_settings=True,
    ),
    Entry(
        name="trainer",
        module="deploy.commands.trainer",
        member="trainer",
        says="Train one scenario; `trainer abandon BATCH` gives a batch up.",
        takes_settings=True,
    ),
    Entry(
        name="release",
        module="deploy.commands.release",
        member="release",
        says="Judge candidates, publish releases, obey rollbacks and promotions.",
        takes_settings=True,
    ),
    Entry(
        name="doctor",
        module="deploy.commands.doctor",
        member="doctor",
        says="Check everything that is needed here, and say how to get what is missing.",
        takes_settings=True,
    ),
    Entry(
        name="stack",
        module="deploy.commands.stack",
        member="app",
        says="Kafka, lakeFS and the engine on this machine: up, down, status.",
    ),
    Entry(
        name="gateway",
        module="deploy.commands.gateway",
        member="gateway",
        says="Run one gateway: the service that applications call.",
        takes_settings=True,
    ),
    Entry(
        name="streams",
        module="deploy.commands.streams",
        member="streams",
        says="Run the stream workers: calls and reports become batches.",
        takes_settings=True,
    ),
    Entry(
        name="status",
        module="deploy.commands.status",
        member="status",
        says="Show how all goes, live: releases, calls, training, swaps.",
    ),
    Entry(
        name="releases",
        module="deploy.commands.chain",
        member="releases",
        says="Show a scenario's chain of releases, with metrics and what serves.",
    ),
    Entry(
        name="rollback",
        module="deploy.commands.chain",
        member="rollback",
        says="Bring an older release back, and wait until it serves.",
    ),
    Entry(
        name="promote",
        module="deploy.commands.chain",
        member="promote",
        says="Publish a held candidate, and wait until it serves.",
    ),
    Entry(
        name="report",
        module="deploy.commands.report",
        member="report",
        says="Say how good an answer was, by its receipt.",
    ),
    Entry(
        name="explain",
        module="deploy.commands.explain",
        member="explain",
        says="Tell the life of a call, report, batch or release, and why not trained.",
    ),
    Entry(
        name="topics",
        module="deploy.commands.topics",
        member="app",
        says="Show the topics of the log, and whether they are as they must be; `tail` shows events.",
    ),
    Entry(
        name="replay",
        module="deploy.commands.replay",
        member="replay",
        says="Recompute samples from the log, as it was or with another recipe; nothing live is written.",
        takes_settings=True,
    ),
    Entry(
        name="rejected",
        module="deploy.commands.rejected",
        member="app",
        says="Show inputs that were refused and why, and put them back once it is mended.",
    ),
    Entry(
        name="forget",
        module="deploy.commands.forget",
        member="forget",
        says="Learn from calls no more; tell what has learned from them, and what stays.",
        takes_settings=True,
    ),
)
"""Every command, in the order of the help. A new one adds a row."""


def main(words: Sequence[str] | None = None) -> None:
    """Run one command line and exit: 0 done, 1 failed, 2 wrong usage."""
    given = list(sys.argv[1:] if words is None else words)
    logging.basicConfig(handlers=[logging.NullHandler()])  # failures are said here in our words
    run(build(given[0] if given else ""), given)


def run(reef: typer.Typer, words: Sequence[str]) -> None:
    """Run it, and say in one line what failed."""
    try:
        reef(words, prog_name="reef")
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:
            _say("interrupted")
        raise
    except ReefError as error:
        _say(str(error))
        raise SystemExit(EXIT_WRONG_USAGE if error.reason == "configuration" else EXIT_FAILED) from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _say(f"expected room to write, got: {words_of(error)}: free some space, or write elsewhere")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still held is given up
        raise SystemExit(EXIT_FAILED) from error


def _say(message: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(f"reef: {message}", style="red"))


def build(wanted: str) -> typer.Typer:
    """Put the command line together: the wanted command whole, of the others only their line in the help."""
    reef = typer.Typer(
        help="Reef on a stream: an LLM service that learns from its own traffic.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    reef.callback()(_root)
    for entry in ENTRIES:
        if entry.name == wanted:
            _add(reef, entry)
        else:
            reef.command(entry.name, help=entry.says)(_other)
    return reef


def _add(reef: typer.Typer, entry: Entry) -> None:
    member = getattr(importlib.import_module(entry.module), entry.member)
    if isinstance(member, typer.Typer):
        reef.add_typer(member, name=entry.name)
        return
    allowed = {"allow_extra_args": True, "ignore_unknown_options": True} if entry.takes_settings else None
    reef.command(entry.name, context_settings=allowed)(member)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"reef {importlib.metadata.version('reef-stream')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="tell the version and end")
]


def _root(_version: Version = False) -> None:
    """Reef on a stream: an LLM service that learns from its own traffic."""


def _other() -> None:
    """Stand for a command that is not wanted now."""


if __name__ == "__main__":
    main()
