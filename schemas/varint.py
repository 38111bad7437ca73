"""Pure: Avro's primitives in Python, as the generated encoders and decoders use them.

Not the whole of Avro: just what schemas/avro/ uses. Bytes are refused, never misread: a slice beyond the end
would be silently short in Python, so whoever slices compares with the end first.

Next: schemas/claims.py
"""

import math
from collections.abc import Mapping
from struct import Struct
from typing import NoReturn

import numpy as np

from schemas.claims import BlobRef
from schemas.errors import RejectedError
from schemas.ids import Sha256

LONG_BYTES_MAX = 10
DOT_FLOATS_MAX = 8_192  # beyond it, a dot product may start threads

double = Struct("<d")


def bad(expected: str) -> NoReturn:
    """Refuse a value that the contract does not allow."""
    raise RejectedError(f"expected {expected}, got another value: correct the writer", reason="bad_value")


def truncated() -> NoReturn:
    """Refuse bytes that end too early."""
    raise RejectedError("expected more bytes, got the end: send the record whole", reason="truncated")


def long_bytes(number: int) -> bytes:
    """Write a long, zigzag and base 128. Raises RejectedError beyond 64 bits."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    if rest >> 64:
        bad("an integer of 64 bits")
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """Read a long and the place behind it. Raises IndexError at the end of the data."""
    byte = data[at]
    raw = byte & 127
    shift = 7
    while byte > 127:
        at += 1
        byte = data[at]
        raw |= (byte & 127) << shift
        shift += 7
        if shift > LONG_BYTES_MAX * 7:
            bad("an integer of at most ten bytes")
    if raw >> 64:
        bad("an integer of 64 bits")
    return (raw >> 1) ^ -(raw & 1), at + 1


def length_at(data: bytes, at: int) -> tuple[int, int]:
    """Read a length, never negative, and the place behind it."""
    length, at = long_at(data, at)
    if length < 0:
        bad("a length of 0 or more")
    return length, at


def num_items_at(data: bytes, at: int) -> tuple[int, int]:
    """Read a block's number of items; a negative one is followed by the block's size, which is skipped."""
    num_items, at = long_at(data, at)
    if num_items < 0:
        _, at = length_at(data, at)
    return abs(num_items), at


LONGS = tuple(long_bytes(number) for number in range(8_192))
"""The longs of one and two bytes, ready made."""
LONG_OF_BYTE = tuple((byte >> 1) ^ -(byte & 1) if byte < 128 else None for byte in range(256))
"""What a first byte says alone; None when more bytes follow."""
LENGTH_OF_BYTE = tuple(byte >> 1 if byte < 128 and not byte & 1 else -1 for byte in range(256))
"""The length that a first byte says alone; -1 when more bytes follow or it is none."""


def text_bytes(text: str) -> bytes:
    """Write a string. Raises UnicodeEncodeError on a lone surrogate."""
    encoded = text.encode()
    return long_bytes(len(encoded)) + encoded


def text_at(data: bytes, at: int) -> tuple[str, int]:
    """Read a string and the place behind it."""
    octets, at = octets_at(data, at)
    return octets.decode(), at


def octets_bytes(octets: bytes) -> bytes:
    """Write bytes."""
    return long_bytes(len(octets)) + octets


def octets_at(data: bytes, at: int) -> tuple[bytes, int]:
    """Read bytes and the place behind them."""
    length, at = length_at(data, at)
    end = at + length
    if end > len(data):
        truncated()
    return data[at:end], end


def double_bytes(number: float) -> bytes:
    """Write a finite double."""
    if not math.isfinite(number):
        bad("a finite number")
    return double.pack(number)


def double_at(data: bytes, at: int) -> tuple[float, int]:
    """Read a finite double and the place behind it."""
    if at + 8 > len(data):
        truncated()
    (number,) = double.unpack_from(data, at)
    if not math.isfinite(number):
        bad("a finite number")
    return number, at + 8


def check_floats(packed: bytes) -> None:
    """Refuse `<f4` bytes of shape [token] that are cut, NaN or infinite."""
    if len(packed) & 3:
        bad("four bytes a number")
    numbers = np.frombuffer(packed, dtype="<f4")
    if len(numbers) <= DOT_FLOATS_MAX and math.isfinite(numbers.dot(numbers)):
        return  # squares are never negative, so nothing that is not finite can cancel out
    if not np.isfinite(numbers).all():
        bad("finite numbers")


def check_tokens(packed: bytes) -> None:
    """Refuse `<u4` bytes that are cut."""
    if len(packed) & 3:
        bad("four bytes a token id")


def check_mask(packed: bytes) -> None:
    """Refuse mask bytes other than 0 and 1."""
    if packed.translate(None, b"\0\1"):
        bad("a mask of zeros and ones")


def ref_bytes(ref: BlobRef) -> bytes:
    """Write the name of a blob."""
    return text_bytes(ref.uri) + text_bytes(ref.sha256) + long_bytes(ref.size)


def claimed_at(
    data: bytes, at: int, blobs: Mapping[Sha256, bytes], missing: list[BlobRef]
) -> tuple[bytes, int]:
    """Read the name of a blob and give its bytes; if they are not there, note them as missing."""
    uri, at = text_at(data, at)
    sha256, at = text_at(data, at)
    size, at = length_at(data, at)
    ref = BlobRef(uri=uri, sha256=Sha256(sha256), size=size)
    blob = blobs.get(ref.sha256)
    if blob is None:
        missing.append(ref)
        return b"", at
    if len(blob) != size:
        bad(f"a blob of {size} bytes at {uri}")
    return blob, at
