"""Shell: `reef replay`: the log folded once more, as it was or otherwise, into tables or replay topics.

Not the work: streams/replay/run.py does that. Nothing live is written, whatever is asked for.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from deploy.configuration import ConfigFile, read_configuration
from deploy.paper import paper
from deploy.progress import say
from schemas.bus import kafka_access
from schemas.errors import RejectedError, words_of
from schemas.settings import Settings
from schemas.settings.secrets import kafka_login
from schemas.settings.settings import process_environment

if TYPE_CHECKING:
    from streams.replay.manifest import Manifest
    from streams.replay.request import Deployment, Request, Result, Show

First = Annotated[
    str | None, typer.Option("--from", help="a time in UTC (2026-10-01T12:00:00Z) or an offset; default: all")
]
Last = Annotated[str | None, typer.Option("--to", help="to before this time or offset; default: the end")]
Recipe = Annotated[str | None, typer.Option("--recipe", help="another recipe, as package.module:Class")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="option=value of the recipe, or streams.option=value; may be repeated"),
]
Out = Annotated[Path | None, typer.Option("--out", help="a new folder for Parquet files")]
Suffix = Annotated[
    str | None, typer.Option("--out-topics", help="write topics <topic>.replay.SUFFIX instead of files")
]
Diff = Annotated[bool, typer.Option("--diff", help="compare with what was trained live, and say why")]
ManifestFile = Annotated[
    Path | None, typer.Option("--manifest", help="manifest.json of an earlier replay: the same once more")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, max=256, help="processes at once; default: one a processor")
]
AsJson = Annotated[bool, typer.Option("--json", help="for machines")]

SHOWN_MAX = 20
"""Differences that are shown; the file has all."""


def replay(  # noqa: PLR0913, PLR0917 - the options of the contract
    context: typer.Context,
    config: ConfigFile = None,
    first: First = None,
    last: Last = None,
    recipe: Recipe = None,
    options: Set = None,
    out: Out = None,
    suffix: Suffix = None,
    diff: Diff = False,
    manifest: ManifestFile = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Recompute experiences and training samples from the log; nothing live is written."""
    settings = read_configuration(config, context.args).settings
    from streams.replay.change import Change, read_options  # noqa: PLC0415 - heavy, and not needed for help
    from streams.replay.ranges import read_point  # noqa: PLC0415
    from streams.replay.request import Request  # noqa: PLC0415

    with _refusals_as_usage():
        _check_together(manifest, (first, last, recipe, options or None), out, suffix, diff)
        request = Request(
            first=None if first is None else read_point(first, "--from"),
            last=None if last is None else read_point(last, "--to"),
            change=Change(recipe=recipe, options=read_options(options or ())),
            manifest=None if manifest is None else _read(manifest),
            out=None if out is None else out.absolute(),
            suffix=suffix,
            is_compared=diff,
            jobs=jobs or os.cpu_count() or 1,
        )
        result, rows = _replayed(settings, request)
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        _show(result, rows, request)


def _check_together(
    manifest: Path | None, others: tuple[object, ...], out: Path | None, suffix: str | None, diff: bool
) -> None:
    if manifest is not None and any(other is not None for other in others):
        raise RejectedError(
            "expected --manifest alone, got --from, --to, --recipe or --set as well: the manifest says it all"
        )
    if out is not None and suffix is not None:
        raise RejectedError("expected --out or --out-topics, got both: replay twice")
    if out is None and suffix is None and not diff:
        raise RejectedError("expected --out DIR, --out-topics SUFFIX or --diff, got none: say what for")


def _read(file: Path) -> "Manifest":
    from streams.replay.manifest import read_manifest  # noqa: PLC0415

    try:
        return read_manifest(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise RejectedError(f"--manifest: expected a readable file, got {file}: {words_of(error)}") from error


@contextmanager
def _refusals_as_usage() -> Iterator[None]:
    """What is refused was asked for wrongly: exit 2."""
    try:
        yield
    except RejectedError as error:
        raise RejectedError(str(error), reason="configuration") from error


def _replayed(settings: Settings, request: "Request") -> "tuple[Result, list[str]]":
    from streams.replay.compare import DIFFERENCE  # noqa: PLC0415
    from streams.replay.run import replay as run  # noqa: PLC0415

    folder = settings.reef.state_dir.absolute() / "replay"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix="work-") as work, _bar() as show:
        result = run(request, _deployment(settings), Path(work), show)
        file = (request.out or Path(work)) / DIFFERENCE
        rows: list[str] = []
        if request.is_compared:
            with file.open() as lines:
                rows = [line for _, line in zip(range(SHOWN_MAX), lines, strict=False)]
    return result, rows


def _deployment(settings: Settings) -> "Deployment":
    from streams.replay.request import Deployment  # noqa: PLC0415

    return Deployment(
        access=kafka_access(settings.kafka, kafka_login(settings, process_environment())),
        blobs_url=settings.blobs_url,
        copies=settings.kafka.copies,
    )


@contextmanager
def _bar() -> Iterator["Show"]:
    """Show how far each step is: a bar on a terminal, else one line a step."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    steps: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def show(step: str, done: int, total: int) -> None:
            if step not in steps:
                steps[step] = progress.add_task(step, total=total)
                if not console.is_terminal:
                    say(f"{step}: {total:,} records")
            progress.update(steps[step], completed=min(done, total))

        yield show


def _show(result: "Result", rows: list[str], request: "Request") -> None:
    console = paper()
    for warning in result.warnings:
        say(f"warning: other bytes are possible: {warning}")
    said = ", ".join(f"{count:,} {name}" for name, count in result.counts.items())
    console.print(Text(f"{result.num_events:,} events folded: {said or 'nothing was stated'}"))
    for name, count in (
        ("refers to before the range", result.num_before_range),
        ("erasures applied from the start", result.num_erasures),
        ("records are no events", result.num_undecodable),
    ):
        if count:
            console.print(Text(f"{count:,} {name}"))
    if result.difference is not None:
        console.print(Text(f"against what was trained live: {json.dumps(result.difference)}"))
        for row in rows:
            one = json.loads(row)
            console.print(Text(f"  {one['what']} {one['experience_id']}: {one['why']}"))
    if request.out is not None:
        console.print(Text(f"written to {request.out}"))
    console.print(Text(f"digest {result.digest}"))
