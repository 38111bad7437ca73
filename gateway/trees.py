"""Shell: the trees of releases, brought here when an agent pulls one, and read once more with their digests.

Not what is said of them: gateway/tree_answers.py.
"""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from gateway.release_folders import Fetching
from gateway.tree_answers import Tree, check_size
from schemas.artifacts import read_manifest
from schemas.errors import ConflictError, RejectedError, UnavailableError, words_of
from schemas.ids import Sha256
from schemas.manifest import ManifestFile

NUM_AT_ONCE_MAX = 4
"""Trees that are read, and held in memory, at the same time; further requests wait."""


class Trees:
    """Reads trees in threads."""

    def __init__(self, fetched: Fetching) -> None:
        """Take who brings the files of a release."""
        self._fetched = fetched
        self._room = asyncio.Semaphore(NUM_AT_ONCE_MAX)

    async def read(self, row: Mapping[str, Any]) -> Tree:
        """Give the files of a release, checked.

        Raises ConflictError when they are no longer there, or too large; UnavailableError when lakeFS or the
        disk does not answer.
        """
        async with self._room:
            return await asyncio.to_thread(self._read, row["artifact_uri"], Sha256(row["content_sha256"]))

    def _read(self, uri: str, content: Sha256) -> Tree:
        try:
            return read_tree(self._fetched.fetch(uri, content), content)
        except RejectedError as error:
            raise ConflictError(str(error), reason=error.reason) from error


def read_tree(folder: Path, content: Sha256) -> Tree:
    """Read the files that a folder's manifest names. Raises ReefError."""
    manifest, _ = read_manifest(folder)
    check_size(manifest)
    if manifest.content_sha256 != content:
        raise _changed(f"content {content} in {folder}")
    return Tree(manifest=manifest, contents={file.path: _content(folder, file) for file in manifest.files})


def _content(folder: Path, file: ManifestFile) -> bytes:
    try:
        with (folder / file.path).open("rb") as opened:
            data = opened.read(file.size + 1)
    except FileNotFoundError as error:
        raise _changed(f"{file.path} in {folder}") from error
    except OSError as error:
        raise UnavailableError(
            f"expected to read {file.path}, got {words_of(error)}: check the disk", reason="disk"
        ) from error
    if sha256(data).hexdigest() != file.sha256:
        raise _changed(f"{file.path} with digest {file.sha256}")
    return data


def _changed(expected: str) -> UnavailableError:
    """A folder that was whole a moment ago: somebody made room."""
    return UnavailableError(
        f"expected {expected}, got another or none: it was removed meanwhile, ask again",
        reason="artifact_moved",
    )
