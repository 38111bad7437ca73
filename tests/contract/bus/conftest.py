"""Shell: topics of one test alone on the shared broker, and a folder for its blobs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from schemas.blobs import BlobStore, open_blob_store
from schemas.bus import KafkaAccess, Reader, Record
from schemas.topic_admin import ensure_topics
from schemas.topics import Cleanup, TimestampType, TopicSpec

MakeTopic = Callable[..., Awaitable[str]]


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    """Keep blobs of this test in a folder."""
    return open_blob_store((tmp_path / "blobs").as_uri())


@pytest.fixture
async def access(kafka_bootstrap: str) -> KafkaAccess:
    """The shared broker, with all topics of the table on it."""
    access = KafkaAccess(bootstrap=kafka_bootstrap)
    await ensure_topics(access)
    return access


@pytest.fixture
def make_topic(access: KafkaAccess) -> MakeTopic:
    """Make a topic that nobody else uses."""

    async def make(
        *, num_partitions: int = 1, cleanup: Cleanup = Cleanup.DELETE, extra: dict[str, str] | None = None
    ) -> str:
        spec = TopicSpec(
            name=f"test.{uuid4().hex}",
            events=(),
            key="any",
            cleanup=cleanup,
            retention_ms=-1,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            extra=extra or {},
        )
        await ensure_topics(access, specs=[spec], num_partitions=num_partitions)
        return spec.name

    return make


async def everything(
    access: KafkaAccess, topic: str, partition: int = 0, *, at_least: int = 0
) -> list[Record]:
    """Read all committed records that the partition holds, once they are as many as expected.

    A commit is answered before its markers stand, so its records show up a little later.
    """
    records: list[Record] = []
    async with Reader(access) as reader, asyncio.timeout(30):
        first = await reader.log_start(topic, partition)
        while True:
            records = [record async for record in reader.read_to_end(topic, partition, first)]
            if len(records) >= at_least:
                return records
            await asyncio.sleep(0.02)
