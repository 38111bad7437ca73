"""Shell: folders of artifacts: listing, digesting and checking their files against a manifest.

Not the transfer of artifacts: what fetches them verifies with `verify_folder` afterwards.
"""

import os
from hashlib import file_digest
from pathlib import Path

from schemas.errors import RejectedError, UnavailableError, words_of
from schemas.events import ArtifactKind
from schemas.ids import Sha256
from schemas.manifest import MANIFEST_NAME, Manifest, ManifestFile, decode_manifest


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
            size = os.fstat(file.fileno()).st_size
            digest = Sha256(file_digest(file, "sha256").hexdigest())
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
