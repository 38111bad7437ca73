"""Shell: a server protocol that sends what one turn of the loop writes in one piece.

uvicorn writes an answer's head and its body one after the other; each write is a system call and wakes the
client. Joined, an answer costs one.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class JoinedWritesProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a transport that joins writes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin a connection."""
        super().connection_made(cast(asyncio.Transport, JoiningTransport(transport, self.loop)))


class JoiningTransport:
    """A transport whose writes leave together, when the loop comes round."""

    __slots__ = ("_loop", "_pending", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap a transport."""
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send soon, with whatever else is written until then."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def close(self) -> None:
        """Send what is pending, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending and not self._transport.is_closing():  # the client may have left since
            self._transport.write(pending[0] if len(pending) == 1 else b"".join(pending))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
