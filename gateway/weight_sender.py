"""Shell: the weight sender as the gateway sees it: a child in the engine's environment, asked over its stdin.

Not the sending itself: gateway/engine/reef_engine/sender.py. The child lives long, since importing
torch takes seconds; one that failed or was late is ended, and the next order gets a new one.
"""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import structlog

from schemas.errors import UnavailableError

START_S_MAX = 120.0
"""How long a child may take to import what it needs."""
LINE_BYTES_MAX = 1_048_576

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class WeightSender:
    """One child at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        """Take the program and its arguments; nothing starts yet."""
        self._command = tuple(command)
        self._child: Process | None = None
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Begin to start the child, so that the first swap need not wait for it."""
        self._warming = asyncio.create_task(self._warm())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        self._warming.cancel()
        await asyncio.gather(self._warming, return_exceptions=True)
        await self.end()

    @property
    def pid(self) -> int | None:
        """Of the child while it runs."""
        return None if self._child is None or self._child.returncode is not None else self._child.pid

    async def offer(self, order: Mapping[str, Any], folder: Path) -> int:
        """Have a folder sent; gives the port at which workers join. Raises UnavailableError."""
        child = await self._running()
        line = orjson.dumps({"command": "send", "folder": str(folder), **order})
        assert child.stdin is not None
        try:
            child.stdin.write(line + b"\n")
            await child.stdin.drain()
        except OSError as error:
            raise _gone() from error
        return int((await self._heard(child, "listening", order["swap_id"]))["port"])

    async def sent(self, swap_id: str) -> int:
        """Wait until every worker has staged everything; how many bytes that is. Raises UnavailableError."""
        if self._child is None:
            raise _gone()
        answer = await self._heard(self._child, "sent", swap_id)
        if answer["problems"]:
            raise not_staged(answer["problems"][0])
        return int(answer["num_bytes"])

    async def end(self) -> None:
        """End the child and with it whatever it was about to send."""
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            child.kill()
        if child is not None:
            await child.wait()

    async def _warm(self) -> None:
        try:
            await self._running()
        except UnavailableError as error:
            _log.warning("sender_not_started", detail=str(error))

    async def _running(self) -> Process:
        async with self._starting:
            if self._child is None or self._child.returncode is not None:
                self._child = await self._started()
            return self._child

    async def _started(self) -> Process:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=LINE_BYTES_MAX
            )
        except OSError as error:
            raise _gone() from error
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._heard(child, "started", None)
        except TimeoutError as error:
            child.kill()
            raise _gone() from error
        _log.info("sender_started", pid=child.pid)
        return child

    async def _heard(self, child: Process, event: str, swap_id: str | None) -> Mapping[str, Any]:
        """Read answers up to the one that is waited for; those of other swaps are over."""
        assert child.stdout is not None
        while line := await child.stdout.readline():
            answer: Mapping[str, Any] = orjson.loads(line)
            if answer.get("swap_id") != swap_id:
                continue
            if answer["event"] == "failed":
                raise UnavailableError(
                    f"expected the sender to send the weights, got {answer['detail']}: it is tried again",
                    reason="sender_failed",
                )
            if answer["event"] == event:
                return answer
        raise _gone()


def not_staged(problem: str) -> UnavailableError:
    """Say that a worker's staging failed."""
    return UnavailableError(
        f"expected the weights to be staged, got {problem}: see the engine's log",
        reason="deadline" if problem.startswith("deadline") else "engine_failed",
    )


def _gone() -> UnavailableError:
    return UnavailableError(
        "expected the weight sender to run, it ended: it is started again with the next swap",
        reason="sender_failed",
    )
