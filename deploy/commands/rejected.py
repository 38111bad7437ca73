"""Shell: `reef rejected`: what was refused and why, the bytes, and their way back."""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from deploy.configuration import OVERRIDES_ALLOWED, ConfigFile
from deploy.default_command import ListByDefault
from deploy.durations import seconds_of
from deploy.log_reach import LIMITS, Bootstrap, OpenLog, WithText, open_log, places_of, reach_log, topic_named
from deploy.paper import paper
from deploy.progress import say, shown_step
from deploy.refusals import (
    ATTEMPTS_MAX,
    LatestOfEach,
    Listing,
    Refusal,
    Wanted,
    attempts_of,
    counts_table,
    likeness,
    place_named,
    put_back,
    refusal_object,
    refusal_whole,
    refusals_table,
    split_words,
)
from deploy.times import moment
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Place, Publisher, Record
from schemas.errors import ConflictError, ReefError, RejectedError
from schemas.events import Event, EventRejected
from schemas.settings import Settings
from schemas.topics import REJECTED

SHOWN_MAX = 1_000
REDRIVEN_MAX = 1_000
"""Refusals that one command puts back."""

app = typer.Typer(cls=ListByDefault, help="Inputs that were refused: list, show, put back.")

Reason = Annotated[str | None, typer.Option("--reason", help="only those refused for this")]
SourceTopic = Annotated[str | None, typer.Option("--topic", help="only those refused from this topic")]
Since = Annotated[str | None, typer.Option("--since", help="only those of the last 30m, 12h, 7d …")]
Number = Annotated[
    int, typer.Option("--lines", "-n", min=0, max=SHOWN_MAX, help="refusals to show, the newest")
]
AsJson = Annotated[bool, typer.Option("--json", help="for machines")]
AttemptsMax = Annotated[
    int, typer.Option("--attempts-max", min=1, max=100, help="never more often than this, all tries together")
]
Refused = Annotated[str, typer.Argument(metavar="REFUSAL", help="PARTITION@OFFSET as the list shows it")]
ManyRefused = Annotated[
    list[str] | None, typer.Argument(metavar="[REFUSAL]...", help="PARTITION@OFFSET as the list shows it")
]


@app.command("list", context_settings=OVERRIDES_ALLOWED)
def listed(
    context: typer.Context,
    reason: Reason = None,
    topic: SourceTopic = None,
    since: Since = None,
    num_shown: Number = 20,
    config: ConfigFile = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Count refusals by reason and topic, and show the newest."""
    settings, access = reach_log(config, context.args, bootstrap)
    wanted, since_us = _wanted(reason, topic), _since_us(since)

    async def run() -> Listing:
        listing = Listing(deque(maxlen=num_shown * len(places := await places_of(access, REJECTED))))
        async with open_log(settings, access) as log:
            async for refusal in _refusals(log, places, wanted, since_us):
                listing.take(refusal)
        return listing

    with shown_step("reading what was refused"):
        listing = asyncio.run(run())
    newest = listing.ordered()[:num_shown]
    if as_json:
        names = ("reason", "stage", "topic", "num")
        counts = [dict(zip(names, (*key, num), strict=True)) for key, num in listing.counts.items()]
        typer.echo(json.dumps({"counts": counts, "refusals": [refusal_object(one) for one in newest]}))
        return
    show_list(listing.counts, newest, is_narrowed=wanted != Wanted() or since_us is not None)


def show_list(
    counts: Mapping[tuple[str, str, str], int], newest: Sequence[Refusal], *, is_narrowed: bool
) -> None:
    """Write counts and the newest refusals for people; one line when there is neither."""
    console = paper()
    if not counts:
        console.print("nothing of this kind was refused" if is_narrowed else "nothing was refused")
        return
    console.print(counts_table(counts))
    if newest:
        console.print()
        console.print(refusals_table([(one, moment(one.timestamp_us)) for one in newest]))


@app.command(context_settings=OVERRIDES_ALLOWED)
def show(
    context: typer.Context,
    refusal: Refused,
    with_text: WithText = False,
    config: ConfigFile = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Show one refusal whole: why, where from, and the original bytes; text only with --with-text."""
    settings, access = reach_log(config, context.args, bootstrap)

    async def run() -> dict[str, Any]:
        async with open_log(settings, access) as log:
            found = await _one(log, await places_of(access, REJECTED), refusal)
            return refusal_whole(found, await _meant(log, found.event), with_text=with_text)

    made = asyncio.run(run())
    if as_json:
        typer.echo(json.dumps(made, ensure_ascii=False))
        return
    for name, value in made.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        paper().print(f"{name}: {text}", markup=False)


@app.command(context_settings=OVERRIDES_ALLOWED)
def redrive(  # noqa: PLR0913, PLR0917 - the options of a command
    context: typer.Context,
    refusals: ManyRefused = None,
    reason: Reason = None,
    topic: SourceTopic = None,
    since: Since = None,
    attempts_max: AttemptsMax = ATTEMPTS_MAX,
    config: ConfigFile = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Put refused records back into their topic, as they came, with a header that counts the attempts."""
    names, overrides = split_words(refusals or ())
    if bool(names) == any(one is not None for one in (reason, topic, since)):
        raise typer.BadParameter("expected refusals by name, or --reason, --topic or --since: name some")
    settings, access = reach_log(config, [*overrides, *context.args], bootstrap)
    wanted, since_us = _wanted(reason, topic), _since_us(since)

    async def run() -> int:
        found = LatestOfEach(REDRIVEN_MAX)
        async with open_log(settings, access) as log:
            places = await places_of(access, REJECTED)
            for name in names:
                refusal = await _one(log, places, name)
                alike = Wanted(topic=refusal.event.source_topic, likeness=likeness(refusal.event))
                beside = [Place(REJECTED, refusal.partition)]  # the same key, so near by
                async for one in _refusals(log, beside, alike, None, is_whole=True):
                    found.take(one)
            async for one in _refusals(log, [] if names else places, wanted, since_us, is_whole=True):
                found.take(one)
            return await _put_all_back(log, settings, access, found.all(), attempts_max, as_json=as_json)

    num_kept = asyncio.run(run())
    if num_kept:
        say(f"{num_kept} refusal(s) stay where they are")
        raise typer.Exit(1)


async def _put_all_back(
    log: OpenLog,
    settings: Settings,
    access: KafkaAccess,
    refusals: Sequence[Refusal],
    attempts_max: int,
    *,
    as_json: bool,
) -> int:
    """Put records back, one after the other; give how many may not."""
    num_kept = 0
    blobs = open_blob_store(settings.blobs_url)
    async with Publisher(access, blobs=blobs, limits=LIMITS) as publisher:
        for refusal in refusals:
            told: dict[str, Any] = {"name": refusal.name, "reason": refusal.event.reason}
            try:
                outgoing = put_back(
                    refusal.event, await _meant(log, refusal.event), attempts_max=attempts_max
                )
            except (RejectedError, ConflictError) as error:
                num_kept += 1
                _tell({**told, "kept": str(error)}, as_json)
                continue
            placed = await publisher.publish_record(outgoing)
            place = {"topic": placed.topic, "partition": placed.partition, "offset": placed.offset}
            _tell({**told, "place": place, "attempt": attempts_of(refusal.event) + 1}, as_json)
    return num_kept


def _tell(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(told))
    elif "kept" in told:
        paper().print(f"{told['name']}  kept: {told['kept']}", markup=False)
    else:
        place = told["place"]
        where = f"{place['topic']}/{place['partition']}@{place['offset']}"
        paper().print(f"{told['name']}  put back to {where}, attempt {told['attempt']}", markup=False)


async def _refusals(
    log: OpenLog, places: Sequence[Place], wanted: Wanted, since_us: int | None, *, is_whole: bool = False
) -> AsyncIterator[Refusal]:
    for place in places:
        first = (
            await log.reader.log_start(*place)
            if since_us is None
            else await log.reader.offset_at(*place, since_us)
        )
        async for record in log.reader.read_to_end(*place, first):
            event = await _refused(log, record, wanted, is_whole=is_whole)
            if event is not None:
                yield Refusal(
                    partition=record.partition,
                    offset=record.offset,
                    timestamp_us=record.timestamp_us,
                    event=event,
                )


async def _refused(log: OpenLog, record: Record, wanted: Wanted, *, is_whole: bool) -> EventRejected | None:
    """Read a refusal if it is meant; blobs are fetched for those alone."""
    try:
        event = await log.event(record, is_whole=False)
        if not isinstance(event, EventRejected) or not wanted.may_have(event):
            return None
        if not is_whole:
            return event
        event = await log.event(record, is_whole=True)
    except RejectedError:
        return None  # whoever may write here may write anything
    return event if isinstance(event, EventRejected) and wanted.has(event) else None


async def _one(log: OpenLog, places: Sequence[Place], name: str) -> Refusal:
    """Read one refusal, whole. Raises RejectedError."""
    partition, offset = place_named(name)
    place = Place(REJECTED, partition)
    bounds = await log.reader.bounds([place] if place in places else [])
    if place in bounds and bounds[place].start <= offset < bounds[place].end:
        async for record in log.reader.read_range(*place, offset, offset):
            event = await log.event(record, is_whole=True)
            if isinstance(event, EventRejected):
                return Refusal(
                    partition=partition, offset=offset, timestamp_us=record.timestamp_us, event=event
                )
    raise RejectedError(
        f"expected a refusal at {partition}@{offset} of {REJECTED}, got none: see `reef rejected`",
        reason="no_such_refusal",
    )


async def _meant(log: OpenLog, event: EventRejected) -> Event | None:
    """Say what the refused bytes are, if they are an event."""
    if event.value is None:
        return None
    try:
        return await log.event_in(event.value)
    except ReefError:
        return None


def _wanted(reason: str | None, topic: str | None) -> Wanted:
    return Wanted(reason=reason, topic=None if topic is None else topic_named(topic))


def _since_us(since: str | None) -> int | None:
    return None if since is None else time.time_ns() // 1_000 - seconds_of(since) * 1_000_000
