"""Shell: keeping watch over a call: it is broken off when its client leaves or its deadline passes.

A call is watched from WATCH_AFTER_S on: a watch costs a task, which nobody shall wait for before the engine
is asked, and many a call is over by then.
"""

import asyncio
from types import TracebackType
from typing import Literal, Self

from gateway.exchange import ClientLeftError, Exchange
from schemas.errors import UnavailableError

WATCH_AFTER_S = 0.2


class Vigil:
    """`with Vigil(...)`: raises ClientLeftError or UnavailableError out of whatever the block awaits."""

    __slots__ = (
        "_exchange",
        "_reason",
        "_task",
        "_timeout_s",
        "_timer",
        "_watcher",
    )

    def __init__(self, exchange: Exchange, *, timeout_s: float) -> None:
        """Watch an exchange whose body was read."""
        self._exchange = exchange
        self._timeout_s = timeout_s
        self._watcher: asyncio.Task[None] | None = None
        self._reason: Literal["left", "late"] | None = None

    def __enter__(self) -> Self:
        """Begin to watch."""
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(min(WATCH_AFTER_S, self._timeout_s), self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Stop watching, and say why the block was broken off."""
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._reason is None or not isinstance(error, asyncio.CancelledError):
            return False
        self._task.uncancel()
        if self._reason == "left":
            raise ClientLeftError from error
        raise UnavailableError(
            f"expected the engine to finish within {self._timeout_s:g} s, got a slower answer: "
            "ask for fewer tokens, or raise inference.timeout_s",
            reason="engine_slow",
        ) from error

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._watcher = loop.create_task(self._until_gone())
        left_s = max(0.0, self._timeout_s - WATCH_AFTER_S)
        self._timer = loop.call_later(left_s, self._break_off, "late")

    async def _until_gone(self) -> None:
        await self._exchange.gone()
        self._break_off("left")

    def _break_off(self, reason: Literal["left", "late"]) -> None:
        if self._reason is None:
            self._reason = "left" if self._exchange.is_sending else reason  # it is the client that is slow
            self._task.cancel()
