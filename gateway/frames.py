"""Shell: messages between the gateway and its courier, whole, in order, over a pair of sockets.

Not a protocol for strangers: both ends are this program in this version. MessagePack, read into the types of
gateway/errands.py and nothing else.
"""

import asyncio
import socket
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
from pydantic import SecretStr

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Far above the largest batch of a lane; more is a bug of ours."""
BUFFER_BYTES_MAX = 1024 * 1024
"""Read ahead at most, unless one message is larger."""

Heard = TypeVar("Heard")


class Frames(Generic[Heard]):
    """One end of the pair."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decoder: msgspec.msgpack.Decoder[Heard],
    ) -> None:
        self._reader, self._writer, self._decoder = reader, writer, decoder

    @classmethod
    async def over(cls, end: socket.socket, heard: Any) -> Self:
        """Take a connected socket over; `heard` is the type, or union of types, that the other end sends."""
        reader, writer = await asyncio.open_connection(sock=end, limit=BUFFER_BYTES_MAX)
        return cls(reader, writer, msgspec.msgpack.Decoder(heard, dec_hook=_made))

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message; what is queued is bounded by what waits for answers. Nothing after the end."""
        if self._writer.is_closing():
            return
        data = _ENCODER.encode(message)
        assert len(data) <= FRAME_BYTES_MAX, len(data)
        self._writer.writelines((len(data).to_bytes(LENGTH_BYTES, "big"), data))

    async def receive(self) -> Heard | None:
        """Give the next message; None when the other end is gone."""
        try:
            size_bytes = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
            return self._decoder.decode(await self._reader.readexactly(size_bytes))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def close(self) -> None:
        """Let the other end know that this one is gone."""
        self._writer.close()


def _plain(value: object) -> object:
    match value:
        case SecretStr():
            return value.get_secret_value()  # between two processes of one program, never on a disk
        case Path():
            return str(value)
        case _:
            raise NotImplementedError(type(value))


def _made(kind: type, plain: Any) -> object:
    assert issubclass(kind, SecretStr | Path), kind
    return kind(plain)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
