"""Shell: the gate before the engines: closed while a swap pauses them, so that new calls wait and none fails.

Not a queue: whoever waits goes on at once when it opens, or is sent away at the deadline.
"""

import asyncio

from schemas.errors import UnavailableError


class Gate:
    """Open unless a swap closes it."""

    def __init__(self, *, wait_s_max: float) -> None:
        """Begin open; `wait_s_max` is how long a call waits before it is sent away."""
        self._wait_s_max = wait_s_max
        self._opened = asyncio.Event()
        self._opened.set()

    @property
    def is_open(self) -> bool:
        """Whether calls pass without waiting."""
        return self._opened.is_set()

    def close(self) -> None:
        """Let nobody through until it opens."""
        self._opened.clear()

    def open(self) -> None:
        """Let everybody through."""
        self._opened.set()

    async def passed(self) -> None:
        """Wait until it is open. Raises UnavailableError at the deadline."""
        try:
            async with asyncio.timeout(self._wait_s_max):
                await self._opened.wait()
        except TimeoutError as error:
            raise UnavailableError(
                f"expected the swap to end within {self._wait_s_max:g} s, got a longer one: "
                "retry after the seconds of Retry-After",
                reason="swapping",
            ) from error
