"""Shell: computing that would hold the event loop is done in a thread, so that others are answered meanwhile.

Not for what waits: a thread takes its turns with the loop, every few milliseconds, and makes nothing faster.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

BYTES_MIN = 16_384
"""Size of a request whose computing takes milliseconds; below it, a thread costs more than it spares."""

Result = TypeVar("Result")


class Aside:
    """Computes for large requests, one at a time, in the order in which they came."""

    def __init__(self) -> None:
        """Begin idle."""
        self._turn = asyncio.Lock()

    async def done(self, compute: Callable[[], Result], *, size_bytes: int) -> Result:
        """Give the result, or raise what it raises; `size_bytes` is how large the request was."""
        if size_bytes < BYTES_MIN:
            return compute()
        async with self._turn:
            return await asyncio.to_thread(compute)
