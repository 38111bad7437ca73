"""Shell: one publication, step by step. Killed between any two of them, the next worker ends it.

Before the merge nothing is published; after it everything follows from what stands on `main`
(release/reconcile.py).

Next: release/chain.py
"""

from collections.abc import Callable
from secrets import token_hex
from typing import Protocol

from release.chain import Artifact, Chain, Prepared
from release.drafts import Draft, next_head
from release.head import Evaluated, Release
from schemas.errors import ConflictError
from schemas.events import Event

ATTEMPT_BYTES = 8
Passed = Callable[[str], None]
"""Told of each point of a publication's order; tests kill there."""


class Announcer(Protocol):
    """Writes events into the log."""

    async def announce(self, event: Event) -> None:
        """Write an event and wait until it stands. Raises UnavailableError."""


async def prepare(
    chain: Chain, draft: Draft, artifact: Artifact, releases: tuple[Release, ...], passed: Passed
) -> Prepared:
    """Bring a draft onto a branch behind the newest release.

    1. Take over what an earlier attempt on this very head has committed. 2. Branch from the head's commit.
    3. Upload. 4. Commit.
    """
    parent = releases[-1] if releases else None
    for found in await chain.prepared(draft.branch_prefix):
        if found.head == next_head(draft, releases, found.head.attempt):
            return found
    head = next_head(draft, releases, token_hex(ATTEMPT_BYTES))
    branch = draft.branch_prefix + head.attempt
    await chain.branch(branch, parent)
    passed("branched")
    await chain.upload(branch, artifact)
    passed("uploaded")
    prepared = await chain.commit(branch, head)
    passed("committed")
    return prepared


async def merge(
    chain: Chain, prepared: Prepared, evaluated: Evaluated, now_us: Callable[[], int], passed: Passed
) -> Release:
    """Make a prepared commit the head, and tag it. Raises ConflictError when another was first.

    A merge whose answer was lost is found on `main`.
    """
    try:
        release = await chain.merge(prepared, evaluated, now_us=now_us())
    except ConflictError:
        release = await _merged_before(chain, prepared)
    passed("merged")
    await chain.tag(release)
    passed("tagged")
    return release


async def _merged_before(chain: Chain, prepared: Prepared) -> Release:
    for release in await chain.releases():
        if release.head == prepared.head:
            return release
    raise ConflictError(
        f"expected {prepared.branch} to be merged on {prepared.head.parent_release_id}, got another "
        "release there: the branch stays for inspection",
        reason="head_moved",
    )
