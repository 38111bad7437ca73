"""Shell: missing topics are created as soon as Kafka answers, by whichever service is first."""

import asyncio
import signal
from contextlib import suppress

import structlog

from schemas.bus import BusLimits, KafkaAccess
from schemas.errors import UnavailableError
from schemas.settings import Settings
from schemas.topic_admin import ensure_topics
from schemas.topics import topic_table

RETRY_S = 2.0
FIRST_LIMITS = BusLimits(open_deadline_s=3.0)
"""So that a person who forgot Kafka reads it soon."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def keep_topics(settings: Settings, access: KafkaAccess) -> None:
    """Create the topics that are missing. Raises RejectedError when one is not as it must be."""
    limits, said = FIRST_LIMITS, None
    while True:
        try:
            await ensure_topics(
                access,
                specs=topic_table(settings.kafka.retention_days).values(),
                num_partitions=settings.kafka.partitions,
                replication_factor=settings.kafka.copies,
                limits=limits,
            )
        except UnavailableError as error:
            if str(error) != said:
                _log.warning("topics_not_ensured", reason=error.reason, detail=str(error), will="wait")
            limits, said = BusLimits(), str(error)
        else:
            if said is not None:
                _log.info("topics_ensured")
            return
        await asyncio.sleep(RETRY_S)


async def topics_before_stop(settings: Settings, access: KafkaAccess) -> bool:
    """Wait for the topics; False when a signal said stop first. Raises as `keep_topics`."""
    waiting = asyncio.ensure_future(keep_topics(settings, access))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, waiting.cancel)
    with suppress(asyncio.CancelledError):
        await waiting
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    return not waiting.cancelled()
