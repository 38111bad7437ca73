"""Shell: follows the log's topics from where they end now, and folds what comes into a story."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deploy.demo.story import Story
from schemas.blobs import open_blob_store
from schemas.bus import Place, Reader, Record, Resolver, SchemaLog, kafka_access
from schemas.errors import RejectedError
from schemas.settings import Settings
from schemas.settings.secrets import kafka_login
from schemas.settings.settings import process_environment
from schemas.topics import CANDIDATES, INTERACTIONS, OUTCOMES, RELEASES, SERVING, TRAINING

TOPICS = (INTERACTIONS, TRAINING, CANDIDATES, RELEASES, SERVING, OUTCOMES)
POLL_S = 0.25


@asynccontextmanager
async def watching(settings: Settings, story: Story) -> AsyncIterator[None]:
    """Fold events into the story until the block ends. Raises UnavailableError when Kafka goes away."""
    access = kafka_access(settings.kafka, kafka_login(settings, process_environment()))
    blobs = open_blob_store(settings.blobs_url)
    async with Reader(access) as reader, SchemaLog(access) as schema_log:
        places = [Place(topic, number) for topic in TOPICS for number in range(settings.kafka.partitions)]
        ends = await reader.bounds(places)
        await reader.follow({place: bounds.end for place, bounds in ends.items()})
        task = asyncio.create_task(_fold(reader, Resolver(schema_log, blobs), story))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _fold(reader: Reader, resolver: Resolver, story: Story) -> None:
    while True:
        for record in await reader.poll(POLL_S):
            await _fold_one(record, resolver, story)


async def _fold_one(record: Record, resolver: Resolver, story: Story) -> None:
    try:
        story.take(await resolver.resolve(record), record.timestamp_us)
    except RejectedError:
        return  # the services refuse it aloud
