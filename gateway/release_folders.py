"""Shell: releases beside the gateway, each as a folder that an engine can start from.

A release holds weights; configuration and tokenizer are the base model's. Files are linked, not copied.
"""

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from gateway.target import Content
from schemas.artifact_fetch import is_whole
from schemas.errors import RejectedError, UnavailableError
from schemas.events import ArtifactKind
from schemas.ids import Sha256
from schemas.manifest import MANIFEST_NAME


class Fetching(Protocol):
    """Brings the files of a release."""

    def fetch(self, uri: str, content_sha256: Sha256) -> Path:
        """Give a folder of exactly this content. Raises RejectedError, UnavailableError."""


class ReleaseFolders:
    """Folders by content; every call here reads disks, so it belongs into a thread."""

    def __init__(self, folder: Path, *, fetched: Fetching, base_folder: Path | None, num_kept: int) -> None:
        """Take a folder of our own, and the base model's if it is on this machine."""
        self._folder, self._fetched, self._base, self._num_kept = folder, fetched, base_folder, num_kept

    def place(self, content: Content) -> Path:
        """Say where a release's folder is, or will be."""
        return self._folder / content.content_sha256

    def materialize(self, wanted: Content) -> Path:
        """Bring a content here, checked. Raises RejectedError, UnavailableError."""
        place = self.place(wanted)
        if wanted.kind is ArtifactKind.CHECKPOINT and is_whole(place, wanted.content_sha256):
            os.utime(place)
            return place
        found = self._fetched.fetch(wanted.artifact_uri, wanted.content_sha256)
        if wanted.kind is not ArtifactKind.CHECKPOINT or (found / "config.json").is_file():
            return found
        self._complete(found, place)
        return place

    def forget_oldest(self, in_use: Collection[Path]) -> None:
        """Keep the newest, and whatever is in use."""
        if not self._folder.is_dir():
            return
        found = sorted(self._folder.iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.name))
        for path in found[: -self._num_kept]:
            if path not in in_use:
                shutil.rmtree(path, ignore_errors=True)

    def _complete(self, content: Path, place: Path) -> None:
        if self._base is None:
            raise RejectedError(
                "expected the base model's configuration on this machine, got only a name of a hub: "
                "set inference.model to a folder",
                reason="artifact_unavailable",
            )
        aside = place.with_name(f".tmp-{place.name}")
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            for source in (content, self._base):
                _link_missing(source, aside, has_weights=source is content)
            os.replace(aside, place)
        except OSError as error:
            raise UnavailableError(
                f"expected to write {place}, got {error}: see to the disk of reef.state_dir",
                reason="artifact_unavailable",
            ) from error


def _link_missing(source: Path, target: Path, *, has_weights: bool) -> None:
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        is_weight = path.suffix == ".safetensors" or path.name.endswith(".index.json")
        is_foreign = not has_weights and (is_weight or path.name == MANIFEST_NAME)
        if not path.is_file() or is_foreign or (target / relative).exists():
            continue
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path.resolve(), target / relative)
        except OSError:  # another file system
            shutil.copy2(path, target / relative)
