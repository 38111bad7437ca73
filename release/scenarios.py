"""Shell: which scenarios there are, as the log tells: those of files and those made by name while it runs."""

import asyncio
from collections.abc import AsyncIterator
from random import uniform

import structlog

from release.publish import Passed
from release.settings import ReleaseSettings
from schemas.bus import Place, Publisher, Reader, Resolver, SchemaLog
from schemas.errors import RejectedError, UnavailableError
from schemas.events import ScenarioConfigured
from schemas.topics import COMMANDS

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def told_scenarios(settings: ReleaseSettings, passed: Passed) -> AsyncIterator[ScenarioConfigured]:
    """Give every configuration of a scenario, from the first ever on; again from there after a failure."""
    rest_s = settings.limits.retry_s
    while True:
        try:
            async for told in _read_once(settings, passed):
                rest_s = settings.limits.retry_s
                yield told
        except UnavailableError as error:
            _log.warning("scenarios_not_read", reason=error.reason, detail=str(error))
        await asyncio.sleep(uniform(rest_s / 2, rest_s))
        rest_s = min(2 * rest_s, settings.limits.retry_s_max)


async def _read_once(settings: ReleaseSettings, passed: Passed) -> AsyncIterator[ScenarioConfigured]:
    async with Publisher(settings.kafka, blobs=settings.blobs) as publisher:
        num_partitions = await publisher.num_partitions(COMMANDS)
    async with Reader(settings.kafka) as reader, SchemaLog(settings.kafka) as schemas:
        resolver = Resolver(schemas, settings.blobs)
        bounds = await reader.bounds([Place(COMMANDS, number) for number in range(num_partitions)])
        await reader.follow({place: found.start for place, found in bounds.items()})
        passed("scenarios_followed")
        async for record in reader:
            try:
                event = await resolver.resolve(record)
            except RejectedError:
                continue  # the relays refuse it, with its bytes
            if isinstance(event, ScenarioConfigured):
                yield event
