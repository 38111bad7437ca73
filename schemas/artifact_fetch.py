"""Shell: the files of a release, brought here and checked: from a folder, or from lakeFS by commit.

Not the writing of releases. What `fetch` gives is the announced content to the byte, or nothing. A commit
holds `manifest.json` and, under `artifact/`, the files that it names; whatever else is there is not read.
"""

import base64
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from pydantic import SecretStr

from schemas.artifacts import manifest_of, read_manifest, verify_folder
from schemas.errors import RejectedError, UnavailableError
from schemas.ids import Sha256
from schemas.manifest import MANIFEST_NAME, Manifest

ARTIFACT_PREFIX = "artifact/"
ARTIFACTS_FOLDER = "artifacts"
"""Below the state folder: what one service of a machine has fetched, no other fetches again."""
TREES_FOLDER = "trees"
"""Beside it, for what agents pull: many small versions must not push weights out."""
ASIDE_PREFIX = ".tmp-"
NUM_KEPT = 4
"""Contents; what is in use beyond them is fetched again."""
NUM_TREES_KEPT = 32
LEFT_BEHIND_S = 3600.0
"""After so long nobody writes on at a folder that is not complete."""
CHUNK_BYTES = 4 * 1024 * 1024
NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class LakefsAccess:
    """A lakeFS server and the proof of who asks."""

    endpoint: str
    """Such as `http://127.0.0.1:8000`."""
    access_key_id: str
    """Names the key."""
    secret_access_key: SecretStr
    """Proves it."""
    deadline_s: float = 60.0
    """Of each wait for bytes."""


class FetchedArtifacts:
    """Contents by their digest, in a folder that services share; those asked for last are kept."""

    def __init__(
        self,
        folder: Path,
        lakefs: LakefsAccess | None,
        *,
        num_kept: int = NUM_KEPT,
        check: Callable[[Manifest], None] = lambda manifest: None,
    ) -> None:
        """Take a folder and a server; `check` may refuse a manifest before its files are brought."""
        self._folder, self._lakefs, self._num_kept, self._check = folder, lakefs, num_kept, check

    def fetch(self, uri: str, content_sha256: Sha256) -> Path:
        """Give a local folder of exactly this content; a `file://` one stays where it is.

        Raises RejectedError `artifact_unavailable` when it is not there, or is not that, and UnavailableError
        when lakeFS or the disk does not answer.
        """
        parts = urlsplit(uri)
        if (folder := local_folder(uri)) is not None:
            return _checked(folder, content_sha256)
        if parts.scheme == "lakefs" and self._lakefs is not None:
            return self._from_lakefs(self._lakefs, parts.netloc, parts.path.strip("/"), content_sha256)
        raise _refusal(f"an address of a folder or of a configured lakeFS, got {uri}")

    def keep(self, folder: Path, manifest: Manifest) -> None:
        """Take in a content that lies on this disk anyway, as links, so that nobody here has to fetch it.

        Nothing is promised: where files cannot be linked, `fetch` goes to lakeFS.
        """
        place = self._folder / manifest.content_sha256
        if place.is_dir():
            return
        with suppress(OSError), self._aside(place) as aside:
            for path in (MANIFEST_NAME, *(file.path for file in manifest.files)):
                (aside / path).parent.mkdir(parents=True, exist_ok=True)
                os.link(folder / path, aside / path)

    def _from_lakefs(self, lakefs: LakefsAccess, repository: str, commit: str, content: Sha256) -> Path:
        place = self._folder / content
        with _disk(place):
            if is_whole(place, content):
                os.utime(place)
                return place
            with self._aside(place) as aside:
                _download(lakefs, repository, commit, MANIFEST_NAME, aside / MANIFEST_NAME)
                manifest, _ = read_manifest(aside)
                self._check(manifest)
                for file in manifest.files:
                    _download(lakefs, repository, commit, ARTIFACT_PREFIX + file.path, aside / file.path)
                _checked(aside, content)
        return place

    @contextmanager
    def _aside(self, place: Path) -> Iterator[Path]:
        """Give an empty folder that becomes the place at the end, unless another was quicker."""
        self._folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=ASIDE_PREFIX, dir=self._folder))
        try:
            yield aside
            try:
                aside.rename(place)
            except OSError:
                if not place.is_dir():
                    raise
            os.utime(place)
            self._keep_newest()
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _keep_newest(self) -> None:
        whole, left_behind_ns = list[tuple[int, Path]](), time.time_ns() - int(LEFT_BEHIND_S * 1e9)
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another service removes it at this moment
                changed_ns = path.stat().st_mtime_ns
                if not path.name.startswith(ASIDE_PREFIX):
                    whole.append((changed_ns, path))
                elif changed_ns < left_behind_ns:
                    shutil.rmtree(path, ignore_errors=True)
        for _, path in sorted(whole)[: -self._num_kept]:
            shutil.rmtree(path, ignore_errors=True)


def local_folder(uri: str) -> Path | None:
    """Give the folder that an address of this machine names; None for any other address."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def is_whole(place: Path, content: Sha256) -> bool:
    """Whether a copy that is kept under its digest is that content; a damaged one is removed."""
    if not place.is_dir():
        return False
    try:
        _checked(place, content)
    except RejectedError:
        shutil.rmtree(place, ignore_errors=True)  # a damaged copy is fetched again
        return False
    return True


def _checked(folder: Path, content: Sha256) -> Path:
    """Check a folder against its manifest, or without one against all of its files."""
    try:
        manifest = _manifest_in(folder)
    except RejectedError as error:
        raise _refusal(f"a whole artifact in {folder}, got one that is damaged ({error})") from error
    if manifest.content_sha256 != content:
        raise _refusal(f"content {content} in {folder}, got {manifest.content_sha256}")
    return folder


def _manifest_in(folder: Path) -> Manifest:
    if not (folder / MANIFEST_NAME).exists():
        return manifest_of(folder)
    manifest, _ = read_manifest(folder)
    verify_folder(folder, manifest)
    return manifest


def _download(lakefs: LakefsAccess, repository: str, commit: str, path: str, target: Path) -> None:
    keys = f"{lakefs.access_key_id}:{lakefs.secret_access_key.get_secret_value()}".encode()
    place = f"/api/v1/repositories/{quote(repository)}/refs/{quote(commit)}/objects?path={quote(path)}"
    request = Request(
        lakefs.endpoint + place, headers={"Authorization": "Basic " + base64.b64encode(keys).decode()}
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with urlopen(request, timeout=lakefs.deadline_s) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file, CHUNK_BYTES)
    except HTTPError as error:
        if error.code == NOT_FOUND:
            raise _refusal(f"{path} in commit {commit} of {repository}, got none") from error
        raise UnavailableError(
            f"expected lakeFS to give {path}, got status {error.code}: check its keys and its log",
            reason="lakefs_failed",
        ) from error


@contextmanager
def _disk(aside: Path) -> Iterator[None]:
    """Translate what sockets and disks raise; both are an OSError."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"expected to bring files to {aside.parent}, got {error}: check lakeFS and the disk",
            reason="lakefs_failed",
        ) from error


def _refusal(expected: str) -> RejectedError:
    return RejectedError(
        f"expected {expected}: see whether the release is still there", reason="artifact_unavailable"
    )
