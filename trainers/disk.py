"""Shell: files that are whole or not there: written aside, flushed to the disk, then renamed."""

import os
import shutil
from pathlib import Path

from schemas.errors import UnavailableError

ASIDE = ".tmp-"
"""Begins the names of what is not whole yet; readers pass over it, and the next start removes it."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file in one step. Raises UnavailableError."""
    aside = path.with_name(ASIDE + path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(data)
        flush(aside)
        aside.replace(path)
        flush(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def empty_folder_aside(path: Path) -> Path:
    """Give an empty folder beside `path`, to be filled and then published. Raises UnavailableError."""
    aside = path.with_name(ASIDE + path.name)
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    except OSError as error:
        raise unwritable(path, error) from error
    return aside


def publish_folder(aside: Path, path: Path) -> None:
    """Flush a filled folder and put it in its place, whatever is there. Raises UnavailableError."""
    try:
        for file in sorted(aside.rglob("*")):
            flush(file)
        flush(aside)
        if path.exists():
            remove_folder(path)
        aside.rename(path)
        flush(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def remove_folder(path: Path) -> None:
    """Take a folder out of sight in one step, then remove it."""
    doomed = path.with_name(f"{ASIDE}gone-{path.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def keep_only(folder: Path, names: set[str]) -> None:
    """Remove every folder in here that is not named, and what was never finished."""
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.is_dir() and path.name not in names:
                remove_folder(path)


def flush(path: Path) -> None:
    """Make a file's bytes, or a folder's names, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: BaseException) -> UnavailableError:
    """Say that the disk refused."""
    return UnavailableError(
        f"expected to write {path}, got {error}: check the disk's space and permissions", reason="disk"
    )
