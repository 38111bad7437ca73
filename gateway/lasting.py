"""Shell: work that goes on for as long as its owner is open, since answers must not end with it.

It meets what is to be expected itself. What else ends it is a bug of ours, or a disk or a library that does
what nobody thought of: that is shouted, and the work begins again a while later.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

RESTART_S = 5.0
"""Rest before it begins again."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Lasting:
    """One such work."""

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        log_event: str,
        on_bug: Callable[[], None] = lambda: None,
    ) -> None:
        """Take what to do, what the log says when it fails, and who is told."""
        self._work, self._log_event, self._on_bug = work, log_event, on_bug
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin, and begin again whenever it fails."""
        self._task = asyncio.create_task(self._work())
        self._task.add_done_callback(self._on_ended)

    async def end(self) -> None:
        """Break it off, and wait until it is over."""
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task is not self._task:
            return
        _log.error(self._log_event, retry_s=RESTART_S, exc_info=task.exception())
        self._on_bug()
        self._timer = asyncio.get_running_loop().call_later(RESTART_S, self.begin)
