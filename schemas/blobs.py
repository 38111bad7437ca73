"""Shell: where bytes go that are too large for the log: a folder or a bucket, by the digest of the bytes.

Not a cache and not a garbage collector: blobs are kept at least as long as the topics that name them. A blob
is found by its digest in this store, whatever address its writer saw, so a store can move, and no record can
make a reader open another place.

Next: schemas/topics.py
"""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from schemas.claims import Blob, BlobRef
from schemas.file_blobs import FileBlobs
from schemas.ids import Sha256

if TYPE_CHECKING:
    from schemas.s3_blobs import S3Access


class BlobStore(Protocol):
    """Keeps bytes by their digest."""

    def uri_of(self, sha256: Sha256) -> str:
        """Say where a blob is or will be."""

    async def put(self, blob: Blob) -> BlobRef:
        """Write a blob, durable on return; a second time is harmless. Raises UnavailableError."""

    async def get(self, ref: BlobRef) -> bytes:
        """Read and verify a blob. Raises RejectedError when it is gone or other bytes, UnavailableError."""

    async def delete(self, ref: BlobRef) -> None:
        """Remove a blob; one that is gone is gone. Raises UnavailableError."""


def open_blob_store(url: str, *, s3: "S3Access | None" = None) -> BlobStore:
    """Open the store at `file:///folder` or `s3://bucket/prefix`. Raises ValueError on another address."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return FileBlobs(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        from schemas.s3_blobs import S3Access, S3Blobs  # noqa: PLC0415 - its client is large, and rarely used

        return S3Blobs(parts.netloc, parts.path, s3 or S3Access())
    raise ValueError(f"blobs.url: expected file:///folder or s3://bucket/prefix, got {url}: correct it")
