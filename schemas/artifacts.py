"""Shell: folders of artifacts: listing, digesting and checking their files against a manifest.

Not the transfer of artifacts: what fetches them verifies with `verify_folder` afterwards. A process digests a
file once as long as it is not changed, under whatever name: a candidate that is staged, published and then
swapped in is three links to the same files of many GiB.
"""

import os
import time
from collections import OrderedDict
from hashlib import file_digest
from pathlib import Path
from typing import IO, NamedTuple

from schemas.errors import RejectedError, UnavailableError, words_of
from schemas.events import ArtifactKind
from schemas.ids import Sha256
from schemas.manifest import MANIFEST_NAME, Manifest, ManifestFile, decode_manifest

KNOWN_FILES_MAX = 4_096
SETTLED_NS = 100_000_000
"""Changed later than so long ago, a file may change again without a change of its time."""


class _Unchanged(NamedTuple):
    """What tells that a file is the same as before."""

    device: int
    inode: int
    size: int
    changed_ns: int


_known: OrderedDict[_Unchanged, Sha256] = OrderedDict()


def manifest_of(folder: Path, kind: ArtifactKind = ArtifactKind.CHECKPOINT) -> Manifest:
    """Describe a folder as it is: every file but `manifest.json` and hidden ones. Raises UnavailableError."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_left_out(folder, path))
    return Manifest(kind=kind, files=tuple(digest_file(folder, str(p.relative_to(folder))) for p in paths))


def read_manifest(folder: Path) -> tuple[Manifest, bytes]:
    """Read `manifest.json` and its bytes. Raises RejectedError."""
    try:
        data = (folder / MANIFEST_NAME).read_bytes()
    except FileNotFoundError as error:
        raise RejectedError(
            f"expected {MANIFEST_NAME} in {folder}, got none: export the artifact again",
            reason="missing_file",
        ) from error
    return decode_manifest(data), data


def digest_file(folder: Path, path: str) -> ManifestFile:
    """Digest one file. Raises RejectedError when it is not there, UnavailableError when it cannot be read."""
    try:
        with (folder / path).open("rb") as file:
            size, digest = _digested(file)
    except FileNotFoundError as error:
        raise RejectedError(
            f"expected {path} in {folder}, got no such file: export the artifact again", reason="missing_file"
        ) from error
    except OSError as error:
        message = f"expected to read {folder / path}, got {words_of(error)}: check the disk"
        raise UnavailableError(message) from error
    return ManifestFile(path=path, sha256=digest, size=size)


def verify_folder(folder: Path, manifest: Manifest) -> None:
    """Check that a folder holds what its manifest names; what it does not name is ignored.

    Raises RejectedError with reason `missing_file` or `digest_mismatch`.
    """
    for expected in manifest.files:
        found = digest_file(folder, expected.path)
        if found != expected:
            raise RejectedError(
                f"expected {expected.path} of {expected.size} bytes with digest {expected.sha256}, got "
                f"{found.size} bytes with {found.sha256}: fetch or export the artifact again",
                reason="digest_mismatch",
            )


def _is_left_out(folder: Path, path: Path) -> bool:
    relative = path.relative_to(folder)
    return relative.name == MANIFEST_NAME or any(part.startswith(".") for part in relative.parts)


def _digested(file: IO[bytes]) -> tuple[int, Sha256]:
    status = os.fstat(file.fileno())
    now = _Unchanged(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    digest = _known.get(now)
    if digest is not None:
        return now.size, digest
    is_settled = time.time_ns() - now.changed_ns > SETTLED_NS
    digest = Sha256(file_digest(file, "sha256").hexdigest())  # type: ignore[arg-type]
    if is_settled:
        _known[now] = digest
        if len(_known) > KNOWN_FILES_MAX:
            _known.popitem(last=False)
    return now.size, digest
