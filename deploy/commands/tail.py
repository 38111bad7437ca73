"""Shell: `reef topics tail`: what stands at the end of a topic, as events, and what comes after it."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from deploy.configuration import ConfigFile
from deploy.event_lines import record_line, record_object
from deploy.log_reach import (
    Bootstrap,
    OpenLog,
    WithText,
    open_log,
    places_of,
    reach_log,
    short_name,
    topic_named,
)
from deploy.paper import paper
from deploy.times import moment
from schemas.bus import Place, Record
from schemas.errors import ReefError, RejectedError
from schemas.events import Event
from schemas.topics import TOPICS

RECORDS_MAX = 10_000
"""Records shown before those that come."""
_POLL_S = 0.5
_WIDER = 4
"""Offsets are no count of records: where markers and compacted records leave gaps, more is read."""

Topic = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="a topic; `interactions` is short for reef.interactions.v1"),
]
Number = Annotated[
    int, typer.Option("--lines", "-n", min=0, max=RECORDS_MAX, help="records to show, the newest")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="go on with what comes, until Ctrl-C")]
From = Annotated[
    int | None, typer.Option("--from", min=0, help="an offset to begin at, of the partition named")
]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="only this partition")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object a line")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What is to be shown."""

    topic: str
    partition: int | None
    first: int | None
    num_records: int
    is_following: bool
    with_text: bool


def tail(  # noqa: PLR0913, PLR0917 - the options of a command
    context: typer.Context,
    topic: Topic = None,
    num_records: Number = 10,
    follow: Follow = False,
    first: From = None,
    partition: Partition = None,
    with_text: WithText = False,
    config: ConfigFile = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest events of a topic, one a line; what people wrote only with --with-text."""
    if topic is None:
        names = ", ".join(short_name(name) for name in TOPICS)
        raise typer.BadParameter(f"expected a topic, got none: name one of {names}")
    if first is not None and partition is None:
        raise typer.BadParameter("expected --partition beside --from, got none: offsets are of one partition")
    settings, access = reach_log(config, context.args, bootstrap)
    wish = _Wish(
        topic=topic_named(topic),
        partition=partition,
        first=first,
        num_records=num_records,
        is_following=follow,
        with_text=with_text,
    )
    show = _as_json if as_json else _as_line

    async def run() -> None:
        places = _chosen(await places_of(access, wish.topic), wish)
        async with open_log(settings, access) as log:
            await _tail(log, places, wish, show)

    with suppress(KeyboardInterrupt):
        asyncio.run(run())


Show = Callable[[Record, Event | ReefError, bool], None]


def _as_json(record: Record, told: Event | ReefError, with_text: bool) -> None:
    typer.echo(json.dumps(record_object(record, told, with_text=with_text), ensure_ascii=False))


def _as_line(record: Record, told: Event | ReefError, with_text: bool) -> None:
    line = record_line(record, told, when=moment(record.timestamp_us), with_text=with_text)
    paper().print(line, markup=False)


def _chosen(places: Sequence[Place], wish: _Wish) -> list[Place]:
    chosen = [place for place in places if wish.partition in (None, place.partition)]
    if not chosen:
        raise RejectedError(
            f"expected a partition of {wish.topic} from 0 to {len(places) - 1}, got {wish.partition}: "
            "correct --partition",
            reason="no_such_partition",
        )
    return chosen


async def _tail(log: OpenLog, places: Sequence[Place], wish: _Wish, show: Show) -> None:
    ends = {place: bound.end for place, bound in (await log.reader.bounds(places)).items()}
    for record in await _newest(log, ends, wish):
        show(record, await _told(log, record, wish), wish.with_text)
    if not wish.is_following:
        return
    await log.reader.follow(ends)
    while True:
        for record in await log.reader.poll(_POLL_S):
            show(record, await _told(log, record, wish), wish.with_text)


async def _newest(log: OpenLog, ends: dict[Place, int], wish: _Wish) -> list[Record]:
    """Give the records to begin with, in the order of their times, or from the offset that was named."""
    records: list[Record] = []
    for place, end in ends.items():
        if wish.first is not None:
            return await _from(log, place, wish.first, end, wish.num_records)
        records += await _newest_of(log, place, end, wish.num_records)
    records.sort(key=lambda record: (record.timestamp_us, record.partition, record.offset))
    return records[len(records) - min(wish.num_records, len(records)) :]


async def _from(log: OpenLog, place: Place, first: int, end: int, num_records: int) -> list[Record]:
    start = await log.reader.log_start(*place)
    if not start <= first <= end:
        raise RejectedError(
            f"expected an offset of {place.topic}/{place.partition} from {start} to {end}, got {first}: "
            "correct --from",
            reason="no_such_offset",
        )
    records: list[Record] = []
    if first < end and num_records:
        async for record in log.reader.read_range(*place, first, end - 1):
            records.append(record)
            if len(records) == num_records:
                break
    return records


async def _newest_of(log: OpenLog, place: Place, end: int, num_records: int) -> list[Record]:
    start, width = await log.reader.log_start(*place), num_records
    while True:
        first = max(start, end - width)
        records = (
            [record async for record in log.reader.read_range(*place, first, end - 1)] if first < end else []
        )
        if len(records) >= num_records or first == start:
            return records[len(records) - min(num_records, len(records)) :]
        width *= _WIDER


async def _told(log: OpenLog, record: Record, wish: _Wish) -> Event | ReefError:
    """Decode a record; where there is no event, say why: others are shown all the same."""
    if record.topic in TOPICS and not TOPICS[record.topic].events:
        return RejectedError("this topic holds no events", reason="state")
    try:
        return await log.event(record, is_whole=wish.with_text)
    except ReefError as error:
        return error
