"""Shell: one HTTP exchange with an engine over aiohttp's pooled connections, without aiohttp's client layer.

That layer (redirects, cookies, proxies, tracing) costs twice what all else here does, and an engine needs
none of it. tests/contract/test_engine_connection.py holds this file to what aiohttp's own client sees.
"""

import asyncio
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from aiohttp.streams import EofStream, StreamReader
from yarl import URL

from gateway.capture import nonsense
from schemas.errors import UnavailableError

CONNECT_S_MAX = 5.0
ANSWER_BYTES_MAX = 256 * 1_048_576
READ_BUFFER_BYTES = 256 * 1_024
_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=CONNECT_S_MAX, sock_connect=CONNECT_S_MAX)


class EngineDownError(UnavailableError):
    """The engine did not take the request, or closed the connection before a first byte."""

    def __init__(self, url: str, error: BaseException) -> None:
        """Name the engine and what came."""
        super().__init__(
            f"expected the engine at {url} to answer, got {type(error).__name__}: it is being restarted, "
            "retry after the seconds of Retry-After",
            reason="engine_down",
        )


class ConnectionClosedError(EngineDownError):
    """The engine closed the connection before a first byte, as it does with one that was idle for long."""


class EngineAnswer:
    """An answer whose head has come. Whoever holds it releases or closes it."""

    __slots__ = ("_connection", "_payload", "retry_after", "status")

    def __init__(self, connection: Connection, message: Any, payload: StreamReader) -> None:
        """Take an answer's head."""
        self._connection = connection
        self._payload = payload
        self.status: int = message.code
        self.retry_after: str | None = message.headers.get("Retry-After")

    async def read(self) -> bytes:
        """Read the whole body and give the connection back, closed unless whole. Raises UnavailableError."""
        is_whole = False
        try:
            data = await self._payload.read()
            is_whole = True
        except _BROKEN as error:
            raise _broken_off(error) from error
        finally:
            self._connection.release() if is_whole else self._connection.close()
        return data

    async def read_some(self) -> bytes:
        """Read what has come; nothing at the end. Raises UnavailableError."""
        try:
            return await self._payload.readany()
        except _BROKEN as error:
            raise _broken_off(error) from error

    def release(self) -> None:
        """Give the connection back; unread bytes close it."""
        self._connection.release()

    def close(self) -> None:
        """Close the connection, by which an engine learns that nobody waits any more."""
        self._connection.close()


class EngineDoor:
    """The way to one engine."""

    def __init__(self, url: str, connector: aiohttp.TCPConnector) -> None:
        """Prepare what is the same in every request."""
        self.url = url
        self._connector = connector
        base = URL(url)
        self._prefix = base.path.rstrip("/")
        self._host = base.authority
        self._request = aiohttp.ClientRequest("POST", base, loop=asyncio.get_running_loop())
        self._heads: dict[str, bytes] = {}

    async def post(self, path: str, body: bytes) -> EngineAnswer:
        """Send a request; returns at the answer's head. Raises EngineDownError."""
        try:
            connection = await self._connector.connect(self._request, [], _TIMEOUT)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EngineDownError(self.url, error) from error
        answer = None
        try:
            answer = await self._exchange(connection, self._head(path) + b"%d\r\n\r\n%b" % (len(body), body))
        finally:
            if answer is None:
                connection.close()
        return answer

    async def _exchange(self, connection: Connection, data: bytes) -> EngineAnswer:
        protocol, transport = connection.protocol, connection.transport
        assert protocol is not None
        assert transport is not None
        protocol.set_response_params(
            read_until_eof=True, auto_decompress=False, read_bufsize=READ_BUFFER_BYTES
        )
        # With the others of this turn of the loop: the first wakes the engine, the rest find it awake.
        asyncio.get_running_loop().call_soon(_write, transport, data)
        try:
            message, payload = await protocol.read()
        except (aiohttp.ClientError, EofStream, OSError) as error:
            raise ConnectionClosedError(self.url, error) from error
        except HttpProcessingError as error:
            raise nonsense("an answer") from error
        return EngineAnswer(connection, message, payload)

    def _head(self, path: str) -> bytes:
        head = self._heads.get(path)
        if head is None:
            head = (
                f"POST {self._prefix}{path} HTTP/1.1\r\nHost: {self._host}\r\n"
                "Content-Type: application/json\r\nContent-Length: "
            ).encode("ascii")
            self._heads[path] = head
        return head


def _write(transport: asyncio.Transport, data: bytes) -> None:
    if not transport.is_closing():
        transport.write(data)


_BROKEN = (aiohttp.ClientError, HttpProcessingError, OSError)


def _broken_off(error: BaseException) -> UnavailableError:
    return UnavailableError(
        f"expected the engine to finish its answer, got {type(error).__name__}: send the call again",
        reason="engine_broke_off",
    )
