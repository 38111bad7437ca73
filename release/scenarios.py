"""Shell: which scenarios there are, as the log tells: those of files and those made by name while it runs."""

import asyncio
from collections.abc import AsyncIterator
from random import uniform

import structlog

from release.publish import Passed
from release.settings import ReleaseSettings
from schemas.bus import Place, Publisher, Reader, Record, Resolver, SchemaLog
from schemas.errors import RejectedError, UnavailableError
from schemas.events import ScenarioConfigured
from schemas.ids import ScenarioName
from schemas.topics import COMMANDS

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def told_scenarios(settings: ReleaseSettings, passed: Passed) -> AsyncIterator[ScenarioConfigured]:
    """Give the latest configuration of each scenario, then every new one; all again after a failure."""
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
        latest: dict[ScenarioName, ScenarioConfigured] = {}
        for place, found in bounds.items():
            if found.start < found.end:
                async for record in reader.read_range(*place, found.start, found.end - 1):
                    latest |= {told.scenario: told for told in await _told(resolver, record)}
        for told in latest.values():
            yield told
        await reader.follow({place: found.end for place, found in bounds.items()})
        passed("scenarios_followed")
        async for record in reader:
            for told in await _told(resolver, record):
                yield told


async def _told(resolver: Resolver, record: Record) -> tuple[ScenarioConfigured, ...]:
    """Read a configuration; what cannot be read is refused by the relays, with its bytes."""
    try:
        event = await resolver.resolve(record)
    except RejectedError:
        return ()
    return (event,) if isinstance(event, ScenarioConfigured) else ()
