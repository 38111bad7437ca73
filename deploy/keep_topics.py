"""Shell: missing topics are created as soon as Kafka answers, by whichever service is first."""

import asyncio

import structlog

from schemas.bus import KafkaAccess
from schemas.errors import UnavailableError
from schemas.settings import Settings
from schemas.topic_admin import ensure_topics
from schemas.topics import topic_table

RETRY_S = 2.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def keep_topics(settings: Settings, access: KafkaAccess) -> None:
    """Create the topics that are missing. Raises RejectedError when one is not as it must be."""
    while True:
        try:
            await ensure_topics(
                access,
                specs=topic_table(settings.kafka.retention_days).values(),
                num_partitions=settings.kafka.partitions,
                replication_factor=settings.kafka.copies,
            )
        except UnavailableError as error:
            _log.warning("topics_not_ensured", reason=error.reason)
        else:
            return
        await asyncio.sleep(RETRY_S)
