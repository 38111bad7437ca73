"""Shell: names, shapes and finiteness of the tensors in a safetensors file, read without torch.

The form: 8 bytes little-endian length, a JSON header of that length, then the tensors' bytes.
"""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from release.gate import Shape, TensorFacts
from schemas.errors import UnavailableError, words_of

TENSORS_SUFFIX = ".safetensors"
HEADER_BYTES_MAX = 100_000_000
_LENGTH_BYTES = 8
_CHUNK_VALUES = 4 * 1024 * 1024

_EXPONENT_BITS: Mapping[str, tuple[str, int]] = {
    "BF16": ("<u2", 0x7F80),
    "F16": ("<u2", 0x7C00),
    "F32": ("<u4", 0x7F800000),
    "F64": ("<u8", 0x7FF0000000000000),
    "F8_E5M2": ("u1", 0x7C),
    "F8_E4M3": ("u1", 0x7F),
}
"""By type: how its bits are read, and the bits that are all set in NaN and infinity only."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


def read_shapes(path: Path) -> dict[str, Shape]:
    """Give names and shapes; a file that is no safetensors has none."""
    return {name: tuple(entry["shape"]) for name, entry in _header(path)[0].items()}


def read_tensors(path: Path) -> dict[str, TensorFacts]:
    """Give all facts; a file that is no safetensors has no tensors. Raises UnavailableError."""
    header, begin = _header(path)
    if not header:
        return {}
    data = np.memmap(path, dtype=np.uint8, mode="r")
    return {
        name: TensorFacts(shape=tuple(entry["shape"]), is_finite=_is_finite(data, begin, entry))
        for name, entry in header.items()
    }


def _is_finite(data: NDArray[np.uint8], begin: int, entry: Mapping[str, Any]) -> bool:
    if entry["dtype"] not in _EXPONENT_BITS:
        return True  # integers and booleans are
    form, bits = _EXPONENT_BITS[entry["dtype"]]
    first, last = entry["data_offsets"]
    raw = data[begin + first : begin + last]
    values = np.frombuffer(raw, dtype=form)
    mask = values.dtype.type(bits)
    chunks = range(0, len(values), _CHUNK_VALUES)
    return not any(bool(((values[at : at + _CHUNK_VALUES] & mask) == mask).any()) for at in chunks)


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Give the entries by name, and where their bytes begin."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            text = file.read(min(length, HEADER_BYTES_MAX))
        size = path.stat().st_size
    except OSError as error:
        raise UnavailableError(
            f"expected to read {path}, got {words_of(error)}: check the disk", reason="disk"
        ) from error
    begin = _LENGTH_BYTES + length
    try:
        entries = {name: entry for name, entry in json.loads(text).items() if name != "__metadata__"}
        is_whole = all(_fits(entry, size - begin) for entry in entries.values())
    except (ValueError, AttributeError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        _log.warning("no_safetensors", path=str(path), num_bytes=size)
        return {}, begin
    return entries, begin


def _fits(entry: Mapping[str, Any], num_bytes: int) -> bool:
    first, last = entry["data_offsets"]
    is_shape = all(isinstance(size, int) and size >= 0 for size in entry["shape"])
    form, _ = _EXPONENT_BITS.get(entry["dtype"], ("u1", 0))
    is_even = entry["dtype"] not in _EXPONENT_BITS or (
        last - first == prod(entry["shape"]) * np.dtype(form).itemsize
    )
    return is_shape and is_even and 0 <= first <= last <= num_bytes
