import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from schemas.blobs import BlobStore
from schemas.bus import (
    BusLimits,
    KafkaAccess,
    Outgoing,
    Place,
    Publisher,
    Reader,
    Record,
    TransactionalPublisher,
)
from schemas.errors import ConflictError, UnavailableError
from schemas.events import Header
from tests.contract.bus.conftest import MakeTopic, everything
from tests.contract.bus.test_transactional import ChangedItsMindError, an_id

pytestmark = pytest.mark.kafka


async def fill(
    access: KafkaAccess, topic: str, blobs: BlobStore, values: list[bytes], partition: int = 0
) -> None:
    async with Publisher(access, blobs=blobs) as publisher:
        deliveries = [
            await publisher.send_record(Outgoing(topic=topic, key=b"k", value=value, partition=partition))
            for value in values
        ]
        for delivery in deliveries:
            await delivery


async def truncate(access: KafkaAccess, topic: str, before: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=access.bootstrap)
    await admin.start()
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=before)})
    await admin.close()


def numbered(first: int, last: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, last + 1)]


async def test_a_range_has_both_its_ends_and_ranges_may_follow_one_another(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic(num_partitions=2)
    await fill(access, topic, blobs, numbered(0, 99))
    await fill(access, topic, blobs, numbered(1000, 1009), partition=1)
    async with Reader(access) as reader:
        for first, last in [(10, 20), (0, 0), (99, 99), (5, 98)]:
            records = [record async for record in reader.read_range(topic, 0, first, last)]
            assert [record.value for record in records] == numbered(first, last)
            assert [record.offset for record in records] == list(range(first, last + 1))
        others = [record async for record in reader.read_range(topic, 1, 3, 4)]
    assert [record.value for record in others] == numbered(1003, 1004)


async def test_a_range_passes_over_aborted_records_and_markers_also_at_its_end(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    async with TransactionalPublisher(access, an_id(), blobs=blobs) as publisher:
        for number in range(6):
            try:
                async with publisher.transaction():
                    await publisher.send_record(Outgoing(topic=topic, key=b"k", value=str(number).encode()))
                    if number % 2:
                        raise ChangedItsMindError
            except ChangedItsMindError:
                pass
    assert len(await everything(access, topic, at_least=3)) == 3
    async with Reader(access) as reader:
        end = 12
        records = [record async for record in reader.read_range(topic, 0, 0, end - 1)]
        tail = [record async for record in reader.read_range(topic, 0, 9, end - 1)]
    assert [(record.offset, record.value) for record in records] == [(0, b"0"), (4, b"2"), (8, b"4")]
    assert tail == []


async def test_the_committed_end_stands_before_an_open_transaction(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    await fill(access, topic, blobs, numbered(0, 2))
    async with TransactionalPublisher(access, an_id(), blobs=blobs) as publisher, Reader(access) as reader:
        async with publisher.transaction():
            await publisher.send_record(Outgoing(topic=topic, key=b"k", value=b"open"))
            await publisher.delivered()
            assert await reader.end_offset(topic, 0) == 3
            assert len([record async for record in reader.read_to_end(topic, 0, 0)]) == 3
        assert len(await everything(access, topic, at_least=4)) == 4
        assert await reader.end_offset(topic, 0) == 5


async def test_a_range_beyond_the_committed_end_is_given_up_after_a_while(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    await fill(access, topic, blobs, numbered(0, 2))
    async with Reader(access, limits=BusLimits(stall_s_max=0.5)) as reader:
        with pytest.raises(UnavailableError, match="nothing beyond 3") as stalled:
            [record async for record in reader.read_range(topic, 0, 0, 7)]
    assert stalled.value.reason == "stalled"


async def test_followed_partitions_are_read_from_where_each_was_left(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic(num_partitions=2)
    await fill(access, topic, blobs, numbered(0, 9), partition=0)
    await fill(access, topic, blobs, numbered(10, 19), partition=1)
    async with Reader(access) as reader:
        await reader.follow({Place(topic, 0): 7, Place(topic, 1): 9})
        found = await collected(reader, 4)
        assert sorted((r.partition, r.offset, r.value) for r in found) == [
            (0, 7, b"7"),
            (0, 8, b"8"),
            (0, 9, b"9"),
            (1, 9, b"19"),
        ]
        assert await reader.poll(0.2) == ()
        await fill(access, topic, blobs, numbered(20, 20), partition=1)
        (late,) = await collected(reader, 1)
        assert (late.partition, late.offset, late.value) == (1, 10, b"20")


async def collected(reader: Reader, count: int) -> list[Record]:
    found: list[Record] = []
    async with asyncio.timeout(30):
        async for record in reader:
            found.append(record)
            if len(found) == count:
                break
    return found


async def test_an_offset_that_the_log_no_longer_holds_stops_the_reader_loudly(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    await fill(access, topic, blobs, numbered(0, 9))
    await truncate(access, topic, before=5)
    async with Reader(access) as reader:
        assert await reader.log_start(topic, 0) == 5
        with pytest.raises(ConflictError, match="its log begins at 5") as truncated:
            await reader.follow({Place(topic, 0): 4})
        assert truncated.value.reason == "log_truncated"
        with pytest.raises(ConflictError) as range_truncated:
            [record async for record in reader.read_range(topic, 0, 3, 8)]
        assert range_truncated.value.reason == "log_truncated"
        await reader.follow({Place(topic, 0): 5})
        assert [record.value for record in await collected(reader, 5)] == numbered(5, 9)


async def test_a_log_cut_away_under_a_reader_stops_it_loudly(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    async with Reader(access) as reader:
        await reader.follow({Place(topic, 0): 0})
        await fill(access, topic, blobs, numbered(0, 9))
        assert [record.value for record in await collected(reader, 10)] == numbered(0, 9)
        reader._seek({Place(topic, 0): 2})
        await truncate(access, topic, before=8)
        reader._seek({Place(topic, 0): 2})
        with pytest.raises(ConflictError) as truncated:
            await collected(reader, 1)
    assert truncated.value.reason == "log_truncated"


async def test_an_offset_beyond_the_end_stops_the_reader_loudly(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    await fill(access, topic, blobs, numbered(0, 2))
    async with Reader(access) as reader:
        with pytest.raises(ConflictError, match="its log ends at 3") as beyond:
            await reader.follow({Place(topic, 0): 4})
    assert beyond.value.reason == "beyond_end"


async def test_headers_and_empty_values_are_kept(access: KafkaAccess, make_topic: MakeTopic) -> None:
    topic = await make_topic()
    async with AIOKafkaProducer(bootstrap_servers=access.bootstrap) as stranger:
        await stranger.send_and_wait(topic, None, b"k", headers=[("a", b"1"), ("a", b"\xff")])
        await stranger.send_and_wait(topic, b"", None)
    tombstone, keyless = await everything(access, topic)
    assert (tombstone.key, tombstone.value) == (b"k", None)
    assert tombstone.headers == (Header(name="a", value=b"1"), Header(name="a", value=b"\xff"))
    assert (keyless.key, keyless.value) == (None, b"")
