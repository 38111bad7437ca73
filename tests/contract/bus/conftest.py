"""Shell: topics of one test alone on the shared broker, and a shelf for blobs."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from uuid import uuid4

import pytest

from schemas.bus import KafkaAccess, Reader, Record
from schemas.claims import Blob, BlobRef
from schemas.errors import RejectedError
from schemas.ids import Sha256
from schemas.topic_admin import ensure_topics
from schemas.topics import Cleanup, TimestampType, TopicSpec

MakeTopic = Callable[..., Awaitable[str]]


class Shelf:
    """A blob store in a dict."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def uri_of(self, sha256: Sha256) -> str:
        return f"shelf:///{sha256}"

    async def put(self, blob: Blob) -> BlobRef:
        self.data[blob.ref.uri] = blob.data
        return blob.ref

    async def get(self, ref: BlobRef) -> bytes:
        data = self.data.get(ref.uri)
        if data is None or sha256(data).hexdigest() != ref.sha256:
            raise RejectedError(f"expected blob {ref.uri}, found none or another", reason="blob_missing")
        return data


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


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
