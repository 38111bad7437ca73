"""Shell: whatever a worker that died left undone is completed from `main`: tags, then events.

It runs at every start, every minute and before every decision; what is complete is left alone.
"""

from collections.abc import Sequence

from release.chain import Chain
from release.drafts import branch_prefix
from release.head import Release, tag_of
from release.memory import Memory
from release.publish import Announcer, Passed
from schemas.events import Operation


async def complete(chain: Chain, memory: Memory, announcer: Announcer, passed: Passed) -> tuple[Release, ...]:
    """Tag and announce what stands on `main`; give the chain, oldest first."""
    releases = await chain.releases()
    tags = await chain.tags()
    for release in releases:
        if tags.get(tag_of(release.seq)) != release.release_id:
            await chain.tag(release)
            passed("tagged")
    await announce(releases, memory, announcer, passed)
    return releases


async def announce(releases: Sequence[Release], memory: Memory, announcer: Announcer, passed: Passed) -> None:
    """Write the events that the log does not hold, oldest release first."""
    for release in releases:
        for event in memory.missing(release):
            await announcer.announce(event)
            memory.note(event)
            passed("announced")


async def tidy(chain: Chain, memory: Memory) -> None:
    """Remove what dead workers staged for candidates and commands that are decided by now."""
    settled = [branch_prefix(Operation.TRAINING, candidate_id) for candidate_id in memory.verdicts]
    settled += [
        branch_prefix(operation, command_id)
        for command_id in memory.refused
        for operation in (Operation.ROLLBACK, Operation.PROMOTE)
    ]
    beginnings = tuple(settled)
    await chain.tidy(lambda branch: branch.startswith(beginnings))
