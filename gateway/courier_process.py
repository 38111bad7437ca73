"""Shell: the gateway's end of its courier: starts it, gives it errands, and starts it again when it dies.

To senders it is where producers come from, to readers of the views it says whether they are up to date. An
errand fails as if Kafka had failed when the courier is gone; whoever gave it tries again, as ever.

Next: streams/topology.py
"""

import asyncio
import random
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from types import TracebackType
from typing import Self, assert_never

import structlog

from gateway.errands import (
    Carry,
    Close,
    Done,
    Follow,
    Followed,
    News,
    Open,
    ScenariosMoved,
    Start,
    error_of,
)
from gateway.following import NOT_READ_YET
from gateway.frames import Frames
from gateway.lasting import Lasting
from schemas.errors import ReefError, UnavailableError
from schemas.records import Outgoing

PROGRAM = "import sys; from gateway.courier import main; main(int(sys.argv[1]))"
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.2, 5.0
END_S_MAX = 15.0
"""How long a courier may take to close its producers before it is killed."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class CourierProcess:
    """A courier while it is open, whatever becomes of its process."""

    def __init__(self, options: Start, *, on_scenarios_moved: Callable[[], Awaitable[object]]) -> None:
        """Take what couriers are told, and who reads the scenarios again when there is news of them."""
        self._options, self._on_scenarios_moved = options, on_scenarios_moved
        self._frames: Frames[News] | None = None
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._numbers = count(1)
        self._follow: Follow | None = None
        self._problem: str | None = NOT_READ_YET
        self.as_of_us = 0
        """Up to when the views have the log's traffic; 0 before they do."""
        self.pid: int | None = None
        """Of the process that runs now."""
        self._live, self._tried = asyncio.Event(), asyncio.Event()
        self._work = Lasting(self._keep, log_event="courier_keeper_failed", on_bug=self._tried.set)

    async def __aenter__(self) -> Self:
        """Start one; what it is asked before it is ready waits for it."""
        self._work.begin()
        await self._tried.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
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

    def follow(self, errand: Follow) -> None:
        """Have the log read into the views, by this courier and by those after it."""
        self._follow = errand
        if self._frames is not None:
            self._frames.send(errand)

    @asynccontextmanager
    async def producer(self) -> AsyncIterator["CarriedProducer"]:
        """Open a producer over there. Raises as opening one here does, and when no courier runs."""
        frames, number = self._there(), next(self._numbers)
        is_clean = False
        try:
            await self.begun(Open(errand=next(self._numbers), producer=number))
            yield CarriedProducer(self, number)
            is_clean = True
        finally:
            frames.send(Close(producer=number, is_clean=is_clean))

    def next_errand(self) -> int:
        """Name an errand."""
        return next(self._numbers)

    def begun(self, errand: Open | Carry) -> "asyncio.Future[None]":
        """Have something begun; the future tells how it ended. Raises UnavailableError without a courier."""
        frames = self._there()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[errand.errand] = done
        done.add_done_callback(lambda _: self._waiting.pop(errand.errand, None))
        frames.send(errand)
        return done

    def _there(self) -> Frames[News]:
        if self._frames is None:
            raise _gone()
        return self._frames

    async def _keep(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                async with self._started() as frames:
                    while (news := await frames.receive()) is not None:
                        backoff_s = BACKOFF_FIRST_S
                        await self._hear(news)
                _log.error("courier_died", retry_s=round(backoff_s, 1))
            except (OSError, ReefError) as error:
                self._tried.set()
                _log.error("courier_failed", retry_s=round(backoff_s, 1), detail=str(error))
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Frames[News]]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
            )
        frames: Frames[News] = await Frames.over(ours, News)
        frames.send(self._options)
        if self._follow is not None:
            frames.send(self._follow)
        self._frames, self.pid = frames, process.pid
        self._tried.set()
        try:
            yield frames
        finally:
            self._frames, self.pid = None, None
            frames.close()
            self._fail_waiting()
            await _ended(process)

    async def _hear(self, news: News) -> None:
        match news:
            case Done():
                self._resolve(news)
            case Followed():
                self._problem, self.as_of_us = news.problem, max(self.as_of_us, news.as_of_us)
                if news.problem is None:
                    self._live.set()
            case ScenariosMoved():
                await self._on_scenarios_moved()
            case _:
                assert_never(news)

    def _resolve(self, done: Done) -> None:
        waiting = self._waiting.get(done.errand)
        if waiting is None or waiting.done():
            return  # nobody waits any more
        if done.failure is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error_of(done.failure))

    def _fail_waiting(self) -> None:
        self._problem = str(_gone())
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(_gone())


class CarriedProducer:
    """A producer that stands in the courier."""

    def __init__(self, courier: CourierProcess, number: int) -> None:
        self._courier, self._number = courier, number

    async def send_records(self, records: Sequence[Outgoing], /) -> Awaitable[None]:
        """Queue records behind those before them; the answer comes when Kafka has all, or why it has not."""
        errand = self._courier.next_errand()
        return self._courier.begun(Carry(errand=errand, producer=self._number, records=tuple(records)))


async def _ended(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(END_S_MAX):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _gone() -> UnavailableError:
    return UnavailableError(
        "expected the gateway's courier to run, got none: it is started again, see the log for why it ended",
        reason="courier_gone",
    )
