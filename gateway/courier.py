"""Shell: the gateway's courier: a process beside it that brings batches to Kafka and reads the log's traffic.

Answers have a core of their own this way. It keeps nothing: what it carries stays in the outbox until Kafka
has it, what it reads goes into the views' file with the offsets. It ends when the gateway does, whatever the
gateway died of, since then its socket ends. Not a service: nobody but its gateway talks to it.

Next: gateway/courier_process.py
"""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable
from contextlib import suppress

import structlog
import uvloop
from setproctitle import setproctitle

from gateway.errands import (
    Carry,
    Close,
    Done,
    Errand,
    Follow,
    Followed,
    Open,
    ScenariosMoved,
    Start,
    failure_of,
)
from gateway.following import OFTEN, Following
from gateway.frames import Frames
from gateway.projection import TRAFFIC
from gateway.views import Views
from schemas.blobs import open_blob_store
from schemas.bus import Publisher
from schemas.errors import ReefError, UnavailableError
from schemas.events import Event, ScenarioConfigured
from schemas.logs import configure_logs

NICENESS = 5
"""Answers come first."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Courier:
    """Runs errands until the gateway is gone."""

    def __init__(self, options: Start, frames: Frames[Errand]) -> None:
        self._options, self._frames = options, frames
        self._blobs = open_blob_store(options.blobs_url)
        self._producers: dict[int, asyncio.Queue[Carry | Close]] = {}

    async def run(self) -> None:
        """Take errands; a bug in one ends the process, and the gateway starts another; following lasts."""
        tasks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while (errand := await self._frames.receive()) is not None:
                match errand:
                    case Open():
                        self._producers[errand.producer] = asyncio.Queue()
                        tasks.add(group.create_task(self._produce(errand)))
                    case Carry() | Close():
                        self._pass_on(errand)
                    case Follow():
                        tasks.add(group.create_task(self._follow(errand)))
                    case Start():
                        raise AssertionError(errand)  # it was the first, and comes once
                tasks = {task for task in tasks if not task.done()}
            for task in tasks:
                task.cancel()

    def _pass_on(self, errand: Carry | Close) -> None:
        errands = self._producers.get(errand.producer)
        if errands is not None:
            errands.put_nowait(errand)
        else:
            assert isinstance(errand, Close), "a producer that was never open carries nothing"

    async def _produce(self, opening: Open) -> None:
        publisher = Publisher(self._options.access, blobs=self._blobs)
        try:
            if await self._did(opening.errand, publisher.__aenter__()):
                await self._carry(publisher, self._producers[opening.producer])
        finally:
            del self._producers[opening.producer]

    async def _carry(self, publisher: Publisher, errands: "asyncio.Queue[Carry | Close]") -> None:
        failed: type[ReefError] | None = UnavailableError
        try:
            while isinstance(errand := await errands.get(), Carry):
                await self._did(errand.errand, _carried(publisher, errand))
            failed = None if errand.is_clean else failed
        finally:
            with suppress(ReefError):
                await publisher.__aexit__(failed, None, None)

    async def _did(self, errand: int, work: Awaitable[object]) -> bool:
        try:
            await work
        except ReefError as error:
            self._frames.send(Done(errand=errand, failure=failure_of(error)))
            return False
        self._frames.send(Done(errand=errand, failure=None))
        return True

    async def _follow(self, errand: Follow) -> None:
        views = Views(errand.folder)
        try:
            following = Following(
                self._options.access,
                views,
                blobs=self._blobs,
                num_partitions=errand.num_partitions,
                topics=TRAFFIC,
                limits=OFTEN,
            )
            following.listen(self._hear)
            following.watch(self._tell)
            self._frames.send(ScenariosMoved())
            async with following:
                await asyncio.get_running_loop().create_future()
        finally:
            views.close()

    def _tell(self, problem: str | None, as_of_us: int) -> None:
        self._frames.send(Followed(problem=problem, as_of_us=as_of_us))

    async def _hear(self, event: Event) -> None:
        if isinstance(event, ScenarioConfigured):
            self._frames.send(ScenariosMoved())


async def _carried(publisher: Publisher, errand: Carry) -> None:
    await (await publisher.send_records(errand.records))


async def work(end: socket.socket) -> None:
    """Be the courier at this end of the pair."""
    frames: Frames[Errand] = await Frames.over(end, Errand)
    options = await frames.receive()
    if options is None:
        return
    assert isinstance(options, Start)
    configure_logs(service="gateway-courier", log_format=options.log_format, level=options.log_level)
    await Courier(options, frames).run()
    _log.info("courier_ended")


def main(descriptor: int) -> None:
    """Run in a process of its own; only the gateway's end tells it to stop."""
    setproctitle("reef: gateway courier")
    os.nice(NICENESS)
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    uvloop.run(work(socket.socket(fileno=descriptor)))
