"""Shell: which program this is: its version, and a digest of what decides a replay's bytes."""

from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable

DECIDING = ("schemas", "streams")
"""Packages whose sources decide; recipes have their own digests."""


@cache
def code_version() -> str:
    """Name the program: `version+digest`."""
    hashed = sha256()
    for package in DECIDING:
        for name, data in sorted(_sources(resources.files(package), package)):
            hashed.update(f"{name} {len(data)}\n".encode() + data)
    return f"{version('reef-stream')}+{hashed.hexdigest()[:16]}"


def writer_version() -> str:
    """Name the library that lays out Parquet."""
    return f"pyarrow {version('pyarrow')}"


def _sources(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            found += _sources(entry, name)
        elif entry.name.endswith((".py", ".avsc")):
            found.append((name, entry.read_bytes()))
    return found
