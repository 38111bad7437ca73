"""Shell: the release service: candidates and commands in, releases and events out, one lane a scenario.

A lane begins with what the log and the chain say, and begins again after every failure: nothing else is kept.

Next: release/gate.py
"""

import asyncio
from random import uniform

import structlog

from release.candidates import DISK_FULL, completed, consider
from release.commands import obey
from release.creation import establish
from release.lane import Lane, Means
from release.log import ANSWERED, ASKED, LogAccess, ScenarioLog
from release.reconcile import tidy
from schemas.errors import ReefError, UnavailableError
from schemas.events import CandidateTrained

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def run_lane(means: Means) -> None:
    """Work for one scenario until cancelled. Whatever is away or broken is tried again, and said loudly."""
    limits = means.settings.limits
    rest_s = limits.retry_s
    while True:
        began_s = asyncio.get_running_loop().time()
        try:
            await work(means)
        except* ReefError as failed:
            for error in reef_errors(failed):
                means.metrics.failed(means.scenario, error)
                _log.error("lane_stopped", scenario=means.scenario, reason=error.reason, detail=str(error))
        if asyncio.get_running_loop().time() - began_s > limits.retry_s_max:
            rest_s = limits.retry_s
        await asyncio.sleep(uniform(rest_s / 2, rest_s))
        rest_s = min(2 * rest_s, limits.retry_s_max)


async def work(means: Means) -> None:
    """Do what is to be done, from the beginning.

    1. Read what was answered. 2. Make release 0. 3. Complete what stands on `main`. 4. Read what is asked.
    """
    settings = means.settings
    async with ScenarioLog(LogAccess(kafka=settings.kafka, blobs=settings.blobs), means.scenario) as log:
        lane = Lane(means=means, log=log)
        async for seen in log.history(ANSWERED):
            lane.memory.note(seen.event)
        made = await establish(means.chain, settings.base, means.now_us, means.passed)
        await completed(lane)
        if made is not None:
            means.metrics.published(made)
        await tidy(means.chain, lane.memory)
        async with asyncio.TaskGroup() as group:
            for part in (read, decide_candidates, obey_commands, keep_complete):
                group.create_task(part(lane))


async def read(lane: Lane) -> None:
    """Put what is asked in line, oldest first, then what is new."""
    backlog = [seen async for seen in lane.log.history(ASKED)]
    for seen in sorted(backlog, key=lambda seen: (seen.record.timestamp_us, seen.record.topic)):
        await lane.take(seen)
    await lane.log.follow()
    lane.means.passed("lane_followed")
    while True:
        for seen in await lane.log.next_events(lane.means.settings.limits.wait_s):
            await lane.take(seen)


async def decide_candidates(lane: Lane) -> None:
    """Give each candidate its verdict. A full disk makes candidates wait, and nobody else."""
    while True:
        candidate = await lane.candidates.get()
        await _decide(lane, candidate)
        lane.decided(candidate.candidate_id)


async def _decide(lane: Lane, candidate: CandidateTrained) -> None:
    while True:
        try:
            return await consider(lane, candidate)
        except UnavailableError as error:
            if error.reason != DISK_FULL:
                raise
            lane.means.metrics.failed(lane.means.scenario, error)
            _log.error("candidate_waits", candidate_id=candidate.candidate_id, detail=str(error))
        await asyncio.sleep(lane.means.settings.limits.disk_retry_s)


async def obey_commands(lane: Lane) -> None:
    """Answer each command."""
    while True:
        await obey(lane, await lane.commands.get())


async def keep_complete(lane: Lane) -> None:
    """Look at the whole chain every minute."""
    while True:
        await asyncio.sleep(lane.means.settings.limits.reconcile_s)
        await completed(lane)


def reef_errors(failed: BaseExceptionGroup[ReefError]) -> tuple[ReefError, ...]:
    """Give the failures of a group, whatever groups they came in."""
    found: list[ReefError] = []
    for error in failed.exceptions:
        found.extend(reef_errors(error) if isinstance(error, BaseExceptionGroup) else (error,))
    return tuple(found)
