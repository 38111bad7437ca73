"""Shell: which release an engine holds, found out and made sure of before it takes a call.

Not the swap. An engine says the release it was told; one that was just started says from which folder, and is
told its release if that folder is known to be one.
"""

from collections.abc import Sequence
from pathlib import Path

from gateway.release_folders import ReleaseFolders
from gateway.target import Target
from gateway.weight_routes import UNNAMED, WeightRoutes
from schemas.artifact_fetch import local_folder
from schemas.errors import RejectedError, UnavailableError

LOOK_S_MAX = 10.0
"""Deadline of each question; a step of the engine may be waited for."""


class BrokenEngineError(UnavailableError):
    """An engine whose last swap broke in the middle: nobody knows its weights."""


async def tidied(engine: WeightRoutes) -> None:
    """Undo what a gateway that was killed left. Raises ReefError when only a restart helps."""
    workers = await engine.staging(LOOK_S_MAX)
    if any(worker.phase == "broken" for worker in workers):
        raise BrokenEngineError(
            f"expected {engine.url} whole, got one whose last swap broke in the middle: restart it",
            reason="engine_failed",
        )
    if any(worker.is_open for worker in workers):
        await engine.abandon(LOOK_S_MAX)
    if await engine.is_paused(LOOK_S_MAX):
        await engine.resume(LOOK_S_MAX)


async def held(engine: WeightRoutes, chain: Sequence[Target], folders: ReleaseFolders) -> Target | None:
    """Say which release of a chain, newest first, an engine holds; None: none of it. Raises ReefError."""
    version = await engine.version(LOOK_S_MAX)
    if version != UNNAMED:
        return next((target for target in chain if target.release_id == version), None)
    folder = (await engine.model_folder(LOOK_S_MAX)).absolute()
    found = next((target for target in chain if folder in _places(target, folders)), None)
    if found is not None:
        await engine.name(found.release_id, LOOK_S_MAX)
        if await engine.version(LOOK_S_MAX) != found.release_id:
            raise UnavailableError(
                f"expected {engine.url} to say {found.release_id}, got another answer: restart it",
                reason="verification_failed",
            )
    return found


async def is_swappable(engine: WeightRoutes) -> bool:
    """Whether an engine has the routes that change weights, and our plug-in behind them. Raises ReefError."""
    try:
        await engine.version(LOOK_S_MAX)
        workers = await engine.staging(LOOK_S_MAX)
    except RejectedError:
        return False
    return all(worker.phase != "absent" for worker in workers)


def _places(target: Target, folders: ReleaseFolders) -> tuple[Path, ...]:
    own, local = folders.place(target).absolute(), local_folder(target.artifact_uri)
    return (own,) if local is None else (own, local.absolute())
