"""Shell: messages between the gateway and its courier, whole, in order, over a pair of sockets.

Not a protocol for strangers: both ends are this program in this version, so objects travel as they are.
"""

import asyncio
import pickle
import socket
from typing import Any, Self

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Far above the largest batch of a lane; more is a bug of ours."""
BUFFER_BYTES_MAX = 1024 * 1024
"""Read ahead at most, unless one message is larger."""


class Frames:
    """One end of the pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Take a connected socket over."""
        return cls(*await asyncio.open_connection(sock=end, limit=BUFFER_BYTES_MAX))

    def send(self, message: object) -> None:
        """Queue a message; what is queued is bounded by what waits for answers. Nothing after the end."""
        if self._writer.is_closing():
            return
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        assert len(data) <= FRAME_BYTES_MAX, len(data)
        self._writer.writelines((len(data).to_bytes(LENGTH_BYTES, "big"), data))

    async def receive(self) -> Any:
        """Give the next message; None when the other end is gone."""
        try:
            size_bytes = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
            return pickle.loads(await self._reader.readexactly(size_bytes))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def close(self) -> None:
        """Let the other end know that this one is gone."""
        self._writer.close()
