"""Shell: a partition's records in a file of this machine: read in order, or one by its offset.

Not a log: it is written once, for one replay, and removed with it. Memory holds none of it: what is read is
the system's cache of the file.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

_HEAD = Struct("<qqII")
_ENTRY = Struct("<qq")
_BUFFER_BYTES = 1024 * 1024


class Spooled(NamedTuple):
    """A record."""

    offset: int
    """Within its partition, rising."""
    time_us: int
    """Its time; microseconds UTC."""
    key: bytes
    """Its key."""
    value: bytes
    """Its event, whole and by the newest schema."""


def index_of(path: Path) -> Path:
    """Name the file beside a spool that tells where each offset stands."""
    return path.with_suffix(".index")


class SpoolWriter:
    """Writes a spool; used inside `with`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.num_records = 0
        """Written so far."""

    def __enter__(self) -> Self:
        self._data = self._path.open("xb", buffering=_BUFFER_BYTES)
        self._index = index_of(self._path).open("xb", buffering=_BUFFER_BYTES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()
        self._index.close()

    def append(self, record: Spooled) -> None:
        """Write one record behind the others."""
        self._index.write(_ENTRY.pack(record.offset, self._at))
        head = _HEAD.pack(record.offset, record.time_us, len(record.key), len(record.value))
        self._at += self._data.write(head + record.key + record.value)
        self.num_records += 1


class Spool:
    """A spool that is complete; used inside `with`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._data = self._path.open("rb")
        size_bytes = index_of(self._path).stat().st_size
        shape = (size_bytes // _ENTRY.size, 2)
        self._index = (
            np.memmap(index_of(self._path), dtype="<i8", mode="r", shape=shape)
            if size_bytes
            else np.empty(shape, dtype="<i8")
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()
        del self._index

    def __len__(self) -> int:
        return len(self._index)

    def find(self, offset: int) -> Spooled | None:
        """Read the record at an offset; None when there is none."""
        at = int(np.searchsorted(self._index[:, 0], offset))
        if at == len(self._index) or self._index[at, 0] != offset:
            return None
        self._data.seek(int(self._index[at, 1]))
        offset, time_us, key_bytes, value_bytes = _HEAD.unpack(self._data.read(_HEAD.size))
        return Spooled(offset, time_us, self._data.read(key_bytes), self._data.read(value_bytes))

    def __iter__(self) -> Iterator[Spooled]:
        with self._path.open("rb", buffering=_BUFFER_BYTES) as data:
            while head := data.read(_HEAD.size):
                offset, time_us, key_bytes, value_bytes = _HEAD.unpack(head)
                yield Spooled(offset, time_us, data.read(key_bytes), data.read(value_bytes))
