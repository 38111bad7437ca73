"""Shell: `reef topics`: what the log holds, topic by topic, and whether it is as it must be.

`reef topics tail` is in deploy/commands/tail.py.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from deploy.commands.tail import tail
from deploy.configuration import OVERRIDES_ALLOWED, ConfigFile
from deploy.default_command import ListByDefault
from deploy.log_reach import LIMITS, Bootstrap, reach_log
from deploy.paper import PAPER_WIDTH, paper
from schemas.bus import Bounds, KafkaAccess, Place, Reader
from schemas.settings import Settings
from schemas.topic_admin import describe_topics, ensure_topics
from schemas.topic_match import TopicFound, refusal
from schemas.topics import FOREVER_MS, TopicSpec, topic_table

app = typer.Typer(cls=ListByDefault, help="The topics of the log, and what stands in them.")

_DAY_MS = 24 * 60 * 60 * 1000

Create = Annotated[bool, typer.Option("--create", help="create the topics that are missing first")]
AsJson = Annotated[bool, typer.Option("--json", help="for machines")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic, as shown."""

    topic: str
    """Its name."""
    partitions: int | None
    """None when it does not exist, as everything that only the cluster knows."""
    cleanup: str
    """What is removed from it."""
    retention_ms: int
    """-1 is for ever."""
    offsets: int | None
    """From the oldest to the newest, those of markers and of what was compacted away included."""
    key: str
    """What puts records into one partition."""
    events: tuple[str, ...]
    """What lives in it."""
    problem: str | None
    """Why it cannot be used and what to do."""


def topics(
    context: typer.Context,
    config: ConfigFile = None,
    bootstrap: Bootstrap = None,
    create: Create = False,
    as_json: AsJson = False,
) -> None:
    """List the topics: partitions, retention, events, and how many records they hold."""
    settings, access = reach_log(config, context.args, bootstrap)
    rows = asyncio.run(_rows(access, settings, create))
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
        return
    console = paper()
    console.print(_table(rows, ", " if console.width == PAPER_WIDTH else "\n"))
    for row in rows:
        if row.problem is not None:
            console.print(Text(row.problem, style="red"))


async def _rows(access: KafkaAccess, settings: Settings, create: bool) -> list[TopicRow]:
    table = topic_table(settings.kafka.retention_days)
    if create:
        found = await ensure_topics(
            access,
            specs=table.values(),
            num_partitions=settings.kafka.partitions,
            replication_factor=settings.kafka.copies,
            limits=LIMITS,
        )
    else:
        found = await describe_topics(access, table, limits=LIMITS)
    async with Reader(access, limits=LIMITS) as reader:
        bounds = await reader.bounds(list(_places(found)))
    return [_row(spec, found.get(spec.name), bounds, settings.kafka.partitions) for spec in table.values()]


def _places(found: Mapping[str, TopicFound]) -> Iterator[Place]:
    for topic in found.values():
        yield from (Place(topic.name, partition) for partition in range(topic.num_partitions))


def _row(
    spec: TopicSpec, found: TopicFound | None, bounds: Mapping[Place, Bounds], num_partitions: int
) -> TopicRow:
    counts = [bound.end - bound.start for place, bound in bounds.items() if place.topic == spec.name]
    return TopicRow(
        topic=spec.name,
        partitions=None if found is None else found.num_partitions,
        cleanup=spec.cleanup if found is None else found.config["cleanup.policy"],
        retention_ms=spec.retention_ms if found is None else found.retention_ms,
        offsets=None if found is None else sum(counts),
        key=spec.key,
        events=tuple(event_type.__name__ for event_type in spec.events),
        problem=_MISSING.format(spec.name) if found is None else refusal(spec, found, num_partitions),
    )


_NUMBERS = ("partitions", "offsets")
_FOLDED = ("cleanup", "key", "events")
_MISSING = "topic {} is missing: create it with `reef topics --create`"


def _table(rows: list[TopicRow], between: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("topic", "partitions", "cleanup", "retention", "offsets", "key", "events"):
        justify: JustifyMethod = "right" if name in _NUMBERS else "left"
        table.add_column(name, no_wrap=name not in _FOLDED, overflow="fold", justify=justify)
    for row in rows:
        table.add_row(
            Text(row.topic, style="" if row.problem is None else "red"),
            "missing" if row.partitions is None else str(row.partitions),
            row.cleanup,
            _duration(row.retention_ms),
            "" if row.offsets is None else f"{row.offsets:,}",
            row.key,
            between.join(row.events),
        )
    return table


def _duration(retention_ms: int) -> str:
    if retention_ms == FOREVER_MS:
        return "for ever"
    return f"{retention_ms / _DAY_MS:g} days"


app.command("list", context_settings=OVERRIDES_ALLOWED)(topics)
app.command("tail", context_settings=OVERRIDES_ALLOWED)(tail)
