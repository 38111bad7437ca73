"""Shell: one trainer a folder: two would write one pointer."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import ConflictError

LOCK = "lock"


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder until the end, or until this process dies. Raises ConflictError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(
                f"expected nobody else to train in {folder}, got a running trainer: stop it first",
                reason="locked",
            ) from error
        yield
