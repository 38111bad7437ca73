"""Shell: one scenario's share of the log: what is asked for, what was answered, and where answers go.

Nothing is committed anywhere: at every start the log and the chain together say what is still to be done.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from schemas.blobs import BlobStore
from schemas.bus import KafkaAccess, Place, Publisher, Reader, Record, Resolver, SchemaLog, rejection
from schemas.errors import ReefError, RejectedError
from schemas.events import Event
from schemas.ids import ScenarioName
from schemas.partitions import partition_of
from schemas.topics import CANDIDATES, COMMANDS, REJECTED, RELEASES

ASKED = (CANDIDATES, COMMANDS)
"""Topics that ask for something."""
ANSWERED = (RELEASES, REJECTED)
"""Topics that tell what was answered."""
STAGE = "release"

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAccess:
    """Where the log and its large fields are."""

    kafka: KafkaAccess
    """The cluster."""
    blobs: BlobStore
    """Fields that are too large for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An event and where it stands."""

    record: Record
    """As read."""
    event: Event
    """What it says."""


class ScenarioLog:
    """Reads and writes for one scenario; used inside `async with`. After an error, open another."""

    def __init__(self, access: LogAccess, scenario: ScenarioName) -> None:
        self._scenario = scenario
        self._publisher = Publisher(access.kafka, blobs=access.blobs)
        self._reader = Reader(access.kafka)
        self._schemas = SchemaLog(access.kafka)
        self._resolver = Resolver(self._schemas, access.blobs)
        self._stack = AsyncExitStack()
        self._next: dict[Place, int] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            for part in (self._publisher, self._reader, self._schemas):
                await undo.enter_async_context(part)
            self._stack = undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def history(self, topics: Sequence[str]) -> AsyncIterator[Seen]:
        """Give what these topics hold now, each from its beginning."""
        for topic in topics:
            place = await self._place(topic)
            bounds = (await self._reader.bounds([place]))[place]
            self._next[place] = bounds.end
            if bounds.start == bounds.end:
                continue
            async for record in self._reader.read_range(*place, bounds.start, bounds.end - 1):
                for seen in await self._seen(record):
                    yield seen

    async def follow(self) -> None:
        """Go on where the history ended, but for refusals, which are read at starts only."""
        await self._reader.follow(
            {place: offset for place, offset in self._next.items() if place.topic != REJECTED}
        )

    async def next_events(self, wait_s: float) -> tuple[Seen, ...]:
        """Give what is new, or nothing after the wait."""
        return tuple(
            [seen for record in await self._reader.poll(wait_s) for seen in await self._seen(record)]
        )

    async def announce(self, event: Event) -> None:
        """Write an event and wait until it stands. Raises UnavailableError."""
        await self._publisher.publish(event)

    async def refuse(self, record: Record, error: ReefError) -> None:
        """State that a record is refused; the same record gives the same refusal."""
        _log.warning("command_refused", scenario=self._scenario, reason=error.reason, detail=str(error))
        await self._publisher.publish(rejection(record, error, STAGE))

    async def _place(self, topic: str) -> Place:
        num_partitions = await self._publisher.num_partitions(topic)
        return Place(topic, partition_of(self._scenario.encode(), num_partitions))

    async def _seen(self, record: Record) -> tuple[Seen, ...]:
        """Decode a record, if it is of this scenario. What cannot be decoded, the relays refuse."""
        if record.key != self._scenario.encode():
            return ()
        try:
            event = await self._resolver.resolve(record)
        except RejectedError as error:
            _log.warning("record_passed_over", topic=record.topic, offset=record.offset, reason=error.reason)
            return ()
        return (Seen(record=record, event=event),)
