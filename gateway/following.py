"""Shell: reads the log into the views, for as long as the gateway runs, and tells who waits for it.

Not a processor: nothing is decided here, and when the log is away the views are merely old.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import structlog

from gateway.lasting import Lasting
from gateway.projection import Seen
from gateway.views import Views
from schemas.bus import BusLimits, KafkaAccess, Place, Reader, Record, Resolver, SchemaLog
from schemas.bus.resolver import BlobReader
from schemas.errors import ConflictError, ReefError, RejectedError
from schemas.events import Event

POLL_S = 0.5
"""Longest rest of the reader."""
SLICE_EVENTS = 16
"""Events decoded before answers have their turn again."""
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.2, 10.0

TELL_EVERY_S = 1.0
"""Least time between two words on how old the views are."""

NOT_READ_YET = "expected the log to be read, got no answer from Kafka yet"
FOLLOWER_FAILED = "expected the log to be read, the reading failed: see views_follower_failed in the log"
RARE = BusLimits(fetch_wait_ms=500)
"""Of topics where little comes: an event is handed out at once, and silence costs two requests a second."""
OFTEN = BusLimits(fetch_wait_ms=250, fetch_bytes_min=1024 * 1024)
"""Of topics that grow with every call: a fetch costs broker and reader the same however little it brings."""

Watch = Callable[[str | None, int], None]
"""Hears what keeps the views from following, and up to when they have the log; microseconds UTC."""
Listener = Callable[[Event], Awaitable[None]]
"""Hears each event after the views have it."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Following:
    """Follows the log while it is open."""

    def __init__(
        self,
        access: KafkaAccess,
        views: Views,
        *,
        blobs: BlobReader,
        num_partitions: int,
        topics: Sequence[str],
        limits: BusLimits | None = None,
    ) -> None:
        self._access, self._views, self._blobs, self._topics = access, views, blobs, topics
        self._limits = limits or RARE
        self._places = [Place(topic, n) for topic in topics for n in range(num_partitions)]
        self._watch: Watch = _nobody
        self._told_s = 0.0
        self.as_of_us = 0
        """Up to when the views have the log; 0 before they do."""
        self._listeners: list[Listener] = []
        self._live = asyncio.Event()
        self._moved = asyncio.Condition()
        self._problem: str | None = NOT_READ_YET
        self._work = Lasting(
            self._run, log_event="views_follower_failed", on_bug=lambda: self._find(FOLLOWER_FAILED)
        )

    def listen(self, listener: Listener) -> None:
        """Have events told to somebody; call it before this is opened."""
        self._listeners.append(listener)

    def watch(self, watch: Watch) -> None:
        """Have somebody told how it goes: when that changes, and every second while it goes on."""
        self._watch = watch

    async def __aenter__(self) -> Self:
        self._work.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._work.end()

    @property
    def problem(self) -> str | None:
        """Say what keeps the views from following; None when nothing does."""
        return self._problem

    async def caught_up(self, deadline_s: float) -> bool:
        """Wait until the log was read to its end once; False when it is not by the deadline."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._live.wait()
        except TimeoutError:
            return False
        return True

    async def moved(self) -> None:
        """Wait until the views change."""
        async with self._moved:
            await self._moved.wait()

    async def _run(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                async with (
                    Reader(self._access, limits=self._limits) as reader,
                    SchemaLog(self._access) as schema_log,
                ):
                    await self._follow(reader)
                    backoff_s = BACKOFF_FIRST_S
                    await self._take_all(reader, Resolver(schema_log, self._blobs))
            except ReefError as error:
                self._find(str(error))
                _log.warning("views_not_following", reason=error.reason, detail=str(error))
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def _find(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            self._watch(problem, self.as_of_us)

    async def _follow(self, reader: Reader) -> None:
        bounds = await reader.bounds(self._places)
        known = await self._views.positions()
        if any(known.get(place, 0) > bound.end for place, bound in bounds.items()):
            _log.warning("views_begin_anew", reason="the log ends before what was read of it")
            await self._views.forget(self._topics)
            known = {}
        await reader.follow({place: max(known.get(place, 0), bound.start) for place, bound in bounds.items()})

    async def _take_all(self, reader: Reader, resolver: Resolver) -> None:
        while True:
            records = await reader.poll(POLL_S)
            if not records:
                self._have_until(time.time_ns() // 1000)
                self._find(None)
                self._live.set()
                continue
            seen = await self._decoded(records, resolver)
            await self._views.apply(seen, _positions(records))
            self._have_until(max(record.timestamp_us for record in records))
            for one in seen:
                for listener in self._listeners:
                    await listener(one.event)
            async with self._moved:
                self._moved.notify_all()

    def _have_until(self, time_us: int) -> None:
        self.as_of_us = max(self.as_of_us, time_us)
        if time.monotonic() - self._told_s >= TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._watch(self._problem, self.as_of_us)

    async def _decoded(self, records: Sequence[Record], resolver: Resolver) -> list[Seen]:
        seen: list[Seen] = []
        for number, record in enumerate(records):
            if number % SLICE_EVENTS == 0:
                await asyncio.sleep(0)
            try:
                seen.append(Seen(record=record, event=await resolver.resolve(record)))
            except RejectedError:
                continue  # the processor of that topic refuses it aloud; a view has nothing to show of it
            except ConflictError as error:
                _log.warning("views_skipped", reason=error.reason, topic=record.topic, offset=record.offset)
        return seen


def _positions(records: Sequence[Record]) -> Mapping[Place, int]:
    return {Place(record.topic, record.partition): record.offset + 1 for record in records}


def _nobody(problem: str | None, as_of_us: int) -> None:
    """Watch without telling anybody."""
