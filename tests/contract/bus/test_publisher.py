import json
import shutil
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from schemas.blobs import BlobStore
from schemas.bus import BusLimits, KafkaAccess, Outgoing, Publisher, Resolver, SchemaLog
from schemas.codec import decode, encode, fingerprint
from schemas.errors import RejectedError, UnavailableError
from schemas.events import EVENT_TYPES, FeedbackReported, InferenceCompleted
from schemas.packed import JsonBytes
from schemas.partitions import partition_of
from schemas.topics import INTERACTIONS, SCHEMAS_LOG, TOPICS
from tests.builders import a_clock_ticked, a_feedback_reported, a_scenario_configured, an_inference_completed
from tests.contract.bus.conftest import MakeTopic, everything

pytestmark = pytest.mark.kafka

NUM_MEANWHILE = 300


async def test_events_come_back_as_they_were_sent_in_the_partition_of_their_key(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic(num_partitions=8)
    events: list[InferenceCompleted | FeedbackReported] = [
        an_inference_completed(),
        a_feedback_reported(),
        a_feedback_reported(score=0.25),
    ]
    async with Publisher(access, blobs=blobs) as publisher:
        placed = [await publisher.publish(event, topic=topic) for event in events]
    partition = partition_of(events[0].route.encode(), 8)
    assert [(p.partition, p.offset) for p in placed] == [(partition, 0), (partition, 1), (partition, 2)]
    records = await everything(access, topic, partition)
    assert [decode(record.value or b"") for record in records] == events
    assert {record.key for record in records} == {events[0].route.encode()}


async def test_the_broker_sets_the_time_of_a_record(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    async with Publisher(access, blobs=blobs) as publisher:
        await publisher.publish(a_feedback_reported(reported_at_us=1), topic=topic)
        await publisher.publish(a_feedback_reported(reported_at_us=2), topic=topic)
    first, second = await everything(access, topic)
    assert 1_500_000_000_000_000 < first.timestamp_us <= second.timestamp_us
    assert first.timestamp_us % 1000 == 0


@pytest.mark.parametrize("size_bytes", [1_000_000, 2_000_000])
async def test_a_large_event_goes_by_reference_and_comes_back_whole(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore, tmp_path: Path, size_bytes: int
) -> None:
    topic = await make_topic()
    text = json.dumps("é" * (size_bytes // 2), ensure_ascii=False).encode()
    event = an_inference_completed(request=JsonBytes(text))
    async with Publisher(access, blobs=blobs) as publisher:
        await publisher.publish(event, topic=topic)
    (record,) = await everything(access, topic)
    assert record.value is not None
    assert len(record.value) < 256 * 1024
    async with SchemaLog(access) as schema_log:
        resolver = Resolver(schema_log, blobs)
        assert await resolver.resolve(record) == event
        for file in [path for path in tmp_path.rglob("*") if path.is_file()]:
            file.unlink()
        with pytest.raises(RejectedError, match="blob"):
            await resolver.resolve(record)
        shutil.rmtree(tmp_path)
        with pytest.raises(UnavailableError, match="blob"):  # an absent store has lost nothing: wait for it
            await resolver.resolve(record)


async def test_a_record_that_the_log_will_not_take_is_refused(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    async with Publisher(access, blobs=blobs) as publisher:
        with pytest.raises(RejectedError, match="MessageSizeTooLarge"):
            await publisher.publish_record(Outgoing(topic=topic, key=b"k", value=bytes(1_100_000)))
        assert (await publisher.publish_record(Outgoing(topic=topic, key=b"k", value=b"small"))).offset == 0


async def test_a_writers_schemas_are_in_the_log_before_its_first_event(
    access: KafkaAccess, blobs: BlobStore
) -> None:
    async with Publisher(access, blobs=blobs):
        pass
    schemas = {record.key: record.value or b"" for record in await everything(access, SCHEMAS_LOG)}
    for event_type in EVENT_TYPES:
        assert json.loads(schemas[fingerprint(event_type)])["name"] == event_type.__name__


async def test_configuration_reaches_every_partition(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic(num_partitions=3)
    event = a_scenario_configured()
    async with Publisher(access, blobs=blobs) as publisher:
        placed = await publisher.publish_to_all(event, topic=topic)
        assert [p.partition for p in placed] == [0, 1, 2]
        assert await publisher.num_partitions(topic) == 3
    for partition in range(3):
        (record,) = await everything(access, topic, partition)
        assert decode(record.value or b"") == event


async def test_a_tick_needs_a_partition(access: KafkaAccess, blobs: BlobStore) -> None:
    async with Publisher(access, blobs=blobs) as publisher:
        with pytest.raises(AssertionError, match="name the partition"):
            await publisher.publish(a_clock_ticked())
        placed = await publisher.publish(a_clock_ticked(), partition=5)
    assert (placed.topic, placed.partition) == (INTERACTIONS, 5)


async def test_a_consumer_of_the_users_own_reads_our_topics(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    async with Publisher(access, blobs=blobs) as publisher:
        await publisher.publish(a_feedback_reported(), topic=topic)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=access.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        message = await consumer.getone()
    assert message.value == encode(a_feedback_reported())


async def test_a_missing_topic_is_named(access: KafkaAccess, blobs: BlobStore) -> None:
    limits = BusLimits(deadline_s=1.0)
    async with Publisher(access, blobs=blobs, limits=limits) as publisher:
        with pytest.raises(UnavailableError, match=r"reef topics --create"):
            await publisher.publish_record(Outgoing(topic="test.nowhere", key=b"k", value=b"v"))


async def test_an_absent_cluster_is_unavailable_within_the_deadline(blobs: BlobStore) -> None:
    nobody = KafkaAccess(bootstrap="127.0.0.1:1")
    with pytest.raises(UnavailableError, match="check that the brokers run"):
        async with Publisher(nobody, blobs=blobs, limits=BusLimits(open_deadline_s=1.0)):
            pass


def test_feedback_lives_where_its_call_lives() -> None:
    assert {InferenceCompleted, FeedbackReported} <= set(TOPICS[INTERACTIONS].events)
