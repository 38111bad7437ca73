"""Pure: Avro's primitives in Python, as the generated encoders and decoders use them.

Not the whole of Avro: just what schemas/avro/ uses. Bytes are refused, never misread: a slice beyond the end
would be silently short in Python, so whoever slices compares with the end first.

Next: schemas/claims.py
"""

import re
from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from schemas.claims import BLOB_BYTES_MAX, BlobRef
from schemas.errors import RejectedError
from schemas.ids import Sha256

LONG_BYTES_MAX = 10
_SHA256 = re.compile("[0-9a-f]{64}")
EIGHT_BYTES_MIN, EIGHT_BYTES_END = 1 << 49, 1 << 56


def bad(expected: str) -> NoReturn:
    """Refuse a value that the contract does not allow."""
    raise RejectedError(f"expected {expected}, got another value: correct the writer", reason="bad_value")


def truncated() -> NoReturn:
    """Refuse bytes that end too early."""
    raise RejectedError("expected more bytes, got the end: send the record whole", reason="truncated")


def long_bytes(number: int) -> bytes:
    """Write a long, zigzag and base 128. Raises RejectedError beyond 64 bits."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    if EIGHT_BYTES_MIN <= rest < EIGHT_BYTES_END:
        return _eight_bytes(rest)
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
    raw = 0
    for shift in range(0, 7 * LONG_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            break
    if byte > 127 or raw >> 64:
        bad("an integer of 64 bits in at most ten bytes")
    return (raw >> 1) ^ -(raw & 1), at


def _eight_bytes(raw: int) -> bytes:
    """Spread 56 bits over eight bytes, by halves: every time of this millennium has this size."""
    raw = raw & 0xFFFFFFF | raw >> 28 << 32
    raw = raw & 0x00003FFF00003FFF | (raw & 0x0FFFC0000FFFC000) << 2
    raw = raw & 0x007F007F007F007F | (raw & 0x3F803F803F803F80) << 1
    return (raw | 0x0080808080808080).to_bytes(8, "little")


def length_at(data: bytes, at: int) -> tuple[int, int]:
    """Read a length, never negative, and the place behind it."""
    length, at = long_at(data, at)
    if length < 0:
        bad("a length of 0 or more")
    return length, at


def num_items_at(data: bytes, at: int) -> tuple[int, int]:
    """Read a block's number of items; a negative one is followed by the block's size, which is skipped."""
    alone = LONG_OF_BYTE[data[at]]
    num_items, at = long_at(data, at) if alone is None else (alone, at + 1)
    if num_items < 0:
        _, at = length_at(data, at)
    return abs(num_items), at


def text_at(data: bytes, at: int) -> tuple[str, int]:
    """Read a string and the place behind it."""
    length, at = length_at(data, at)
    end = at + length
    if end > len(data):
        truncated()
    return data[at:end].decode(), end


LONGS = tuple(long_bytes(number) for number in range(8_192))
"""The longs of one and two bytes, ready made."""
LONG_OF_BYTE = tuple((byte >> 1) ^ -(byte & 1) if byte < 128 else None for byte in range(256))
"""What a first byte says alone; None when more bytes follow."""
STEP_OF_BYTE = tuple(1 + (byte >> 1) if byte < 128 and not byte & 1 else 1 << 62 for byte in range(256))
"""From a length of one byte to the end of what it measures; beyond any end when it is no such length."""


def check_floats(packed: bytes) -> None:
    """Refuse `<f4` bytes of shape [token] that are cut, NaN or infinite."""
    if len(packed) & 3:
        bad("four bytes a number")
    exponents = packed[
        3::4
    ]  # sign and seven bits of eight: all ones for NaN, infinity and what is near to it
    if (127 in exponents or 255 in exponents) and not np.isfinite(np.frombuffer(packed, dtype="<f4")).all():
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
    return _text_bytes(ref.uri) + _text_bytes(ref.sha256) + long_bytes(ref.size)


def claimed_at(
    data: bytes, at: int, blobs: Mapping[Sha256, bytes], missing: list[BlobRef]
) -> tuple[bytes, int]:
    """Read the name of a blob and give its bytes; if they are not there, note them as missing."""
    uri, at = text_at(data, at)
    sha256, at = text_at(data, at)
    size, at = length_at(data, at)
    if not _SHA256.fullmatch(sha256) or size > BLOB_BYTES_MAX:
        bad(f"the name of a blob: 64 hex digits and at most {BLOB_BYTES_MAX} bytes")
    ref = BlobRef(uri=uri, sha256=Sha256(sha256), size=size)
    blob = blobs.get(ref.sha256)
    if blob is None:
        missing.append(ref)
        return b"", at
    if len(blob) != size:
        bad(f"a blob of {size} bytes at {uri}")
    return blob, at


def _text_bytes(text: str) -> bytes:
    encoded = text.encode()
    return long_bytes(len(encoded)) + encoded
