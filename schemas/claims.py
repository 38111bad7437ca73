"""Pure: the claim check: bytes too large for the log travel as the name of a blob that was written before.

Not a store (schemas/blobs.py): this decides which fields go, and names what must be fetched.

Next: schemas/blobs.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Self

from schemas.errors import ReefError, RejectedError
from schemas.ids import Sha256

CLAIM_CHECK_THRESHOLD_BYTES = 256 * 1024
"""A record larger than this loses its large fields to blobs."""

BLOB_BYTES_MAX = 256 * 1024 * 1024
"""One field of one event is never larger; a reader refuses a name that claims more."""

NO_BLOBS: Mapping[Sha256, bytes] = MappingProxyType({})
"""For readers that have fetched nothing yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """Where bytes are, and what they must be."""

    uri: str
    """Where the bytes are."""
    sha256: Sha256
    """Digest of the bytes; a reader verifies it."""
    size: int
    """How many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Bytes to be written before the record that names them."""

    ref: BlobRef
    """The name they go by."""
    data: bytes
    """The bytes."""


class MovedBytes(bytes):
    """Stands for bytes that stay in their blob: as long as they are, and empty."""

    _size: int

    def __new__(cls, size: int) -> Self:
        """Stand for so many bytes."""
        made = super().__new__(cls)
        made._size = size
        return made

    def __len__(self) -> int:
        """Say how many bytes stay in the blob."""
        return self._size


class BlobsNeededError(ReefError):
    """An event cannot be read before these blobs are fetched; then decode it again with them."""

    def __init__(self, refs: tuple[BlobRef, ...]) -> None:
        """Name the blobs, in the order of the fields."""
        super().__init__(
            f"expected {len(refs)} blobs beside the event: fetch them first", reason="blobs_needed"
        )
        self.refs = refs


def largest_first(values: Iterable[bytes], excess_bytes: int, saved_bytes_per_blob: int) -> tuple[bytes, ...]:
    """Choose what moves: the largest values, until the record is no longer too large by `excess_bytes`.

    Equal values share a blob and go together. A value that costs more by name than by value stays.
    """
    chosen: list[bytes] = []
    counted: dict[bytes, int] = {}
    for value in values:
        counted[value] = counted.get(value, 0) + 1
    for value in sorted(counted, key=lambda value: (-len(value), value)):
        saved = counted[value] * (len(value) - saved_bytes_per_blob)
        if excess_bytes <= 0 or saved <= 0:
            break
        chosen.append(value)
        excess_bytes -= saved
    return tuple(chosen)


def verified_blob(ref: BlobRef, data: bytes) -> bytes:
    """Accept a blob's bytes. Raises RejectedError when they are not those that were written."""
    if len(data) != ref.size or sha256(data).hexdigest() != ref.sha256:
        raise RejectedError(
            f"expected {ref.size} bytes of sha256 {ref.sha256}, got others at {ref.uri}: restore the blob",
            reason="blob_mismatch",
        )
    return data


def missing_blob(ref: BlobRef, uri: str) -> RejectedError:
    """Say that a blob is definitely not there."""
    return RejectedError(
        f"expected the blob {ref.uri} at {uri}, got nothing: keep blobs as long as the topics that name them",
        reason="blob_missing",
    )
