"""Shell: blobs in a folder: each a file named by its digest, whole or not there."""

import asyncio
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from schemas.claims import Blob, BlobRef, missing_blob, verified_blob
from schemas.errors import UnavailableError, words_of
from schemas.ids import Sha256


class FileBlobs:
    """A store in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def uri_of(self, sha256: Sha256) -> str:
        """Say where a blob is or will be."""
        return self._path(sha256).as_uri()

    async def put(self, blob: Blob) -> BlobRef:
        """Write a blob, durable on return; a second time is harmless. Raises UnavailableError."""
        try:
            await asyncio.to_thread(_write, self._path(blob.ref.sha256), blob.data)
        except OSError as error:
            raise _unavailable(error) from error
        return blob.ref

    async def get(self, ref: BlobRef) -> bytes:
        """Read and verify a blob. Raises RejectedError when it is gone or other bytes, UnavailableError."""
        try:
            data = await asyncio.to_thread(_read, self._path(ref.sha256), ref.size + 1)
        except FileNotFoundError as error:
            if not self._folder.is_dir():
                raise _unavailable(error) from error  # a disk that is not mounted has lost nothing
            raise missing_blob(ref, self.uri_of(ref.sha256)) from error
        except OSError as error:
            raise _unavailable(error) from error
        return verified_blob(ref, data)

    async def delete(self, ref: BlobRef) -> None:
        """Remove a blob; one that is gone is gone. Raises UnavailableError."""
        try:
            await asyncio.to_thread(self._path(ref.sha256).unlink, missing_ok=True)
        except OSError as error:
            raise _unavailable(error) from error

    def _path(self, digest: Sha256) -> Path:
        return self._folder / digest[:2] / digest


def _write(path: Path, data: bytes) -> None:
    """Write beside, make durable, rename, make the name durable: a reader sees all of it or nothing."""
    if _is_there(path, data):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)
    for folder in (path.parent, path.parent.parent):
        _make_names_durable(folder)


def _is_there(path: Path, data: bytes) -> bool:
    with suppress(FileNotFoundError):
        return sha256(_read(path, len(data) + 1)).digest() == sha256(data).digest()
    return False


def _read(path: Path, num_bytes_max: int) -> bytes:
    with path.open("rb") as file:
        return file.read(num_bytes_max)


def _make_names_durable(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unavailable(error: OSError) -> UnavailableError:
    return UnavailableError(
        f"expected the blob folder to answer, got {words_of(error)}: check the disk and its permissions",
        reason="blobs_unavailable",
    )
