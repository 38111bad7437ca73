"""Shell: the release service: candidates and commands in, releases and events out, one desk a scenario.

A desk begins with what the log and the chain say, and begins again after every failure: nothing else is kept.

Next: release/gate.py
"""

import asyncio
from random import uniform

import structlog

from release.candidates import DISK_FULL, completed, consider
from release.commands import obey
from release.creation import establish
from release.desk import Desk, Means
from release.log import ANSWERED, ASKED, LogAccess, ScenarioLog
from release.reconcile import tidy
from schemas.errors import ReefError, UnavailableError
from schemas.events import CandidateTrained

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def run_desk(means: Means) -> None:
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
                _log.error("desk_stopped", scenario=means.scenario, reason=error.reason, detail=str(error))
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
        desk = Desk(means=means, log=log)
        async for seen in log.history(ANSWERED):
            desk.memory.note(seen.event)
        made = await establish(means.chain, settings.base, means.now_us, means.passed)
        await completed(desk)
        if made is not None:
            means.metrics.published(made)
        await tidy(means.chain, desk.memory)
        async with asyncio.TaskGroup() as group:
            for part in (read, decide_candidates, obey_commands, keep_complete):
                group.create_task(part(desk))


async def read(desk: Desk) -> None:
    """Put what is asked in line, oldest first, then what is new."""
    backlog = [seen async for seen in desk.log.history(ASKED)]
    for seen in sorted(backlog, key=lambda seen: (seen.record.timestamp_us, seen.record.topic)):
        await desk.take(seen)
    await desk.log.follow()
    desk.means.passed("desk_followed")
    while True:
        for seen in await desk.log.next_events(desk.means.settings.limits.wait_s):
            await desk.take(seen)


async def decide_candidates(desk: Desk) -> None:
    """Give each candidate its verdict. A full disk makes candidates wait, and nobody else."""
    while True:
        candidate = await desk.candidates.get()
        await _decide(desk, candidate)
        desk.decided(candidate.candidate_id)


async def _decide(desk: Desk, candidate: CandidateTrained) -> None:
    while True:
        try:
            return await consider(desk, candidate)
        except UnavailableError as error:
            if error.reason != DISK_FULL:
                raise
            desk.means.metrics.failed(desk.means.scenario, error)
            _log.error("candidate_waits", candidate_id=candidate.candidate_id, detail=str(error))
        await asyncio.sleep(desk.means.settings.limits.disk_retry_s)


async def obey_commands(desk: Desk) -> None:
    """Answer each command."""
    while True:
        await obey(desk, await desk.commands.get())


async def keep_complete(desk: Desk) -> None:
    """Look at the whole chain every minute."""
    while True:
        await asyncio.sleep(desk.means.settings.limits.reconcile_s)
        await completed(desk)


def reef_errors(failed: BaseExceptionGroup[ReefError]) -> tuple[ReefError, ...]:
    """Give the failures of a group, whatever groups they came in."""
    found: list[ReefError] = []
    for error in failed.exceptions:
        found.extend(reef_errors(error) if isinstance(error, BaseExceptionGroup) else (error,))
    return tuple(found)
