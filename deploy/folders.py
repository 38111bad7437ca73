"""Shell: folders of ours: made with a clear refusal, and files in them replaced whole or not at all."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import UnavailableError

_LOCK_POLL_S = 0.2


def make_folder(folder: Path, *, setting: str) -> Path:
    """Make a folder in which we can read and write. Raises UnavailableError, which names the setting."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UnavailableError(
            f"expected a folder to read and write at {folder}, got {error.strerror or error}: "
            f"remove what is there, give its owner back with chown, or set {setting} to another folder",
            reason="bad_folder",
        ) from error
    return folder


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace a file so that a reader sees the old content or the new one, also after a kill."""
    descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # only we can read it
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    os.replace(aside, path)


def made_once(final: Path, make: Callable[[Path], None], *, wait_s: float) -> Path:
    """Give `final`, made by `make` into a folder aside and renamed when whole.

    Of several processes one makes it and the others wait, at most `wait_s`.
    """
    if final.exists():
        return final
    make_folder(final.parent, setting="REEF_CACHE")
    with held_lock(final.with_name(f".{final.name}.lock"), wait_s=wait_s):
        if final.exists():
            return final
        aside = final.with_name(f".{final.name}.making")
        shutil.rmtree(aside, ignore_errors=True)  # what a killed maker left
        aside.mkdir()
        make(aside)
        aside.rename(final)
    return final


@contextmanager
def held_lock(path: Path, *, wait_s: float) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends. Raises UnavailableError after `wait_s`."""
    deadline_s = time.monotonic() + wait_s
    with path.open("ab") as file:
        while not _try_lock(file.fileno()):
            if time.monotonic() >= deadline_s:
                raise UnavailableError(
                    f"expected to hold {path} within {wait_s:g} s, got another process that holds it: "
                    "wait for it, or end it",
                    reason="locked",
                )
            time.sleep(_LOCK_POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
