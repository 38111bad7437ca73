"""Many records at once stand in the log as if each had been sent alone."""

import random

import pytest

from schemas.blobs import BlobStore
from schemas.bus import KafkaAccess, Outgoing, Publisher
from schemas.errors import RejectedError, UnavailableError
from schemas.events import Header
from schemas.packed import OriginalBytes
from schemas.partitions import partition_of
from tests.contract.bus.conftest import MakeTopic, everything

pytestmark = pytest.mark.kafka

NUM_PARTITIONS = 3


async def test_many_records_keep_their_order_in_the_partition_of_their_key(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topics = [await make_topic(num_partitions=NUM_PARTITIONS) for _ in range(2)]
    rng = random.Random(7)
    records = [
        Outgoing(
            topic=rng.choice(topics),
            key=b"k%d" % rng.randrange(20),
            value=b"%d." % number + rng.randbytes(rng.choice([10, 3_000, 90_000])),
            headers=(Header(name="n", value=OriginalBytes(b"%d" % number)),),
        )
        for number in range(400)
    ]
    async with Publisher(access, blobs=blobs) as publisher:
        for at in range(0, len(records), 100):
            await (await publisher.send_records(records[at : at + 100]))
    for topic in topics:
        for partition in range(NUM_PARTITIONS):
            expected = [
                (record.key, record.value, record.headers)
                for record in records
                if record.topic == topic and partition_of(record.key, NUM_PARTITIONS) == partition
            ]
            found = await everything(access, topic, partition, at_least=len(expected))
            assert [(record.key, record.value, record.headers) for record in found] == expected


async def test_a_record_that_is_too_large_is_refused_among_others(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic(extra={"max.message.bytes": "10000"})
    large = Outgoing(topic=topic, key=b"k", value=random.Random(1).randbytes(20_000))
    async with Publisher(access, blobs=blobs) as publisher:
        delivery = await publisher.send_records([large])
        with pytest.raises(RejectedError, match="expected Kafka"):
            await delivery


async def test_a_topic_that_is_missing_is_said(access: KafkaAccess, blobs: BlobStore) -> None:
    async with Publisher(access, blobs=blobs) as publisher:
        record = Outgoing(topic="test.missing", key=b"k", value=b"v")
        with pytest.raises(UnavailableError):
            await (await publisher.send_records([record]))
