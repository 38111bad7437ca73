"""Shell: what containers share is made before they start: the model's folder, the repository of blobs.

Run as `python -m deploy.first_run -c FILE model blobs`; again, it changes nothing. `reef serve` needs none of
it: there the stack prepares its model, and blobs lie in the state folder.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from deploy.embedded.model import PREPARED_MODELS, convert_model
from deploy.folders import made_once
from deploy.lakefs_access import find_lakefs_access
from release.repository import MAIN, Repository
from schemas.errors import ReefError, RejectedError
from schemas.settings import Settings
from schemas.settings.settings import load_for_command, process_environment

_WAIT_S_MAX = 900.0
MODEL, BLOBS = "model", "blobs"


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line and make what it names; exit with 1 and one line when that fails."""
    parser = argparse.ArgumentParser(prog="python -m deploy.first_run")
    parser.add_argument("-c", "--config", type=Path, required=True)
    parser.add_argument("makes", nargs="+", choices=(MODEL, BLOBS))
    given = parser.parse_args(words)
    try:
        settings = load_for_command(given.config).settings
        if MODEL in given.makes:
            make_model(settings.inference.model)
        if BLOBS in given.makes:
            asyncio.run(make_blobs(settings))
    except ReefError as error:
        raise SystemExit(f"reef: {error}") from error


def make_model(given: str) -> None:
    """Make a small model's folder, unless a model is there. Raises RejectedError."""
    folder = Path(given)
    if (folder / "config.json").is_file():
        return
    if not folder.is_absolute() or folder.name not in PREPARED_MODELS:
        raise RejectedError(
            f"expected inference.model as the path of a model's folder, or of one to be made that ends in "
            f"{' or '.join(PREPARED_MODELS)}, got {given}: copy your model there, or correct the path",
            reason="configuration",
        )
    made_once(folder, lambda aside: convert_model(folder.name, aside), wait_s=_WAIT_S_MAX)


async def make_blobs(settings: Settings) -> None:
    """Make the repository of lakeFS that `blobs.url` names as its bucket. Raises ReefError."""
    name, prefix = repository_of(settings.blobs_url), settings.lakefs.storage_namespace
    repository = Repository(find_lakefs_access(settings, process_environment()), name)
    if not await repository.exists():
        await repository.create(f"{prefix}{'' if prefix.endswith('/') else '/'}{name}")


def repository_of(blobs_url: str) -> str:
    """Read `s3://REPOSITORY/main/…` as lakeFS's S3 gateway does. Raises RejectedError."""
    parts = urlsplit(blobs_url)
    if parts.scheme != "s3" or parts.path.strip("/").split("/")[0] != MAIN:
        raise RejectedError(
            f"expected blobs.url as s3://REPOSITORY/{MAIN}/PREFIX, got {blobs_url}: correct it, or make the "
            "bucket of another store by hand",
            reason="configuration",
        )
    return parts.netloc


if __name__ == "__main__":
    main()
