"""Shell: rows into Parquet whose bytes depend on the rows alone: fixed settings, no time of writing.

A file is one partition's part of a table; a folder of parts is a data set for whoever reads Parquet.
"""

from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from schemas.events import Event
from streams.replay.rows import TABLES, Kind, Row, TableForm

GROUP_ROWS_MAX: Final = 1_000
"""Of a row group."""
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a row group's texts and arrays: long samples make smaller groups."""

_PACKED: Final = {Kind.TOKENS: "<u4", Kind.REALS: "<f4", Kind.BITS: "u1"}
_TYPES: Final = {
    Kind.TEXT: pa.string(),
    Kind.WHOLE: pa.int64(),
    Kind.REAL: pa.float64(),
    Kind.TEXTS: pa.list_(pa.string()),
    Kind.TOKENS: pa.list_(pa.uint32()),
    Kind.REALS: pa.list_(pa.float32()),
    Kind.BITS: pa.list_(pa.uint8()),
}


class TablePart:
    """One file of a table."""

    def __init__(self, path: Path, form: TableForm) -> None:
        self._form = form
        self._schema = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in form.columns.items()])
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = parquet.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            compression="zstd",
            compression_level=1,  # half the time of the default, one hundredth more bytes
            use_dictionary=False,
            write_statistics=False,
        )
        self._rows: list[Row] = []
        self._bytes = 0

    def add(self, row: Row) -> None:
        """Write down one row."""
        self._rows.append(row)
        self._bytes += sum(len(value) for value in row if isinstance(value, bytes | str))
        if len(self._rows) >= GROUP_ROWS_MAX or self._bytes >= GROUP_BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """Write the rest and the end of the file."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True)
        arrays = [
            _array(kind, values) for kind, values in zip(self._form.columns.values(), columns, strict=True)
        ]
        self._writer.write_table(pa.table(arrays, schema=self._schema), row_group_size=len(self._rows))
        self._rows.clear()
        self._bytes = 0


def _array(kind: Kind, values: Sequence[Any]) -> Any:
    if kind not in _PACKED:
        return pa.array([list(each) if isinstance(each, tuple) else each for each in values], _TYPES[kind])
    dtype = np.dtype(_PACKED[kind])
    ends = accumulate((len(each) // dtype.itemsize for each in values), initial=0)
    flat = pa.array(np.frombuffer(b"".join(values), dtype=dtype))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, type=_TYPES[kind])


class Tables:
    """The parts that one partition writes, each begun with its first row; used inside `with`."""

    def __init__(self, folder: Path | None, name: str) -> None:
        """Write files of this name below a folder; None for nowhere."""
        self._folder, self._name = folder, name
        self._parts: dict[str, TablePart] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self._parts.values():
            part.close()

    def add(self, event: Event) -> None:
        """Write down an event, if it has a table."""
        form = TABLES.get(type(event))
        if form is not None and self._folder is not None:
            self.add_row(form, form.row_of(event))

    def add_row(self, form: TableForm, row: Row) -> None:
        """Write down a row."""
        if self._folder is None:
            return
        part = self._parts.get(form.name)
        if part is None:
            part = self._parts[form.name] = TablePart(
                self._folder / form.name / f"{self._name}.parquet", form
            )
        part.add(row)


def digest_of(path: Path) -> str:
    """Digest a file."""
    with path.open("rb") as file:
        hashed = sha256()
        while chunk := file.read(1024 * 1024):
            hashed.update(chunk)
    return hashed.hexdigest()
