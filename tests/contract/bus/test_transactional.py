import asyncio
from os import urandom
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from schemas.blobs import BlobStore
from schemas.bus import BusLimits, KafkaAccess, Outgoing, Place, TransactionalPublisher
from schemas.codec import decode
from schemas.errors import ConflictError, RejectedError
from schemas.topics import Cleanup
from tests.builders import a_feedback_reported
from tests.contract.bus.conftest import MakeTopic, everything

pytestmark = pytest.mark.kafka


class ChangedItsMindError(Exception):
    pass


def an_id() -> str:
    return f"test/{uuid4().hex}"


def a_record(topic: str, value: bytes, partition: int | None = None) -> Outgoing:
    return Outgoing(topic=topic, key=b"k", value=value, partition=partition)


async def values(access: KafkaAccess, topic: str, *, at_least: int = 0) -> list[bytes | None]:
    return [record.value for record in await everything(access, topic, at_least=at_least)]


async def send_all(publisher: TransactionalPublisher, *records: Outgoing) -> None:
    async with publisher.transaction():
        for record in records:
            await publisher.send_record(record)


async def send_and_change_ones_mind(publisher: TransactionalPublisher, *records: Outgoing) -> None:
    async with publisher.transaction():
        for record in records:
            await publisher.send_record(record)
        raise ChangedItsMindError


async def test_outputs_and_state_of_a_transaction_appear_together(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    outputs, state = await make_topic(num_partitions=4), await make_topic(cleanup=Cleanup.COMPACT)
    async with TransactionalPublisher(access, an_id(), blobs=blobs) as publisher:
        async with publisher.transaction():
            await publisher.send(a_feedback_reported(), topic=outputs, partition=3)
            await publisher.send_record(a_record(state, b"state 1"))
            assert await values(access, state) == []
        assert await values(access, state, at_least=1) == [b"state 1"]
    (record,) = await everything(access, outputs, 3, at_least=1)
    assert decode(record.value or b"") == a_feedback_reported()


async def test_what_was_aborted_no_reader_sees(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    async with TransactionalPublisher(access, an_id(), blobs=blobs) as publisher:
        await send_all(publisher, a_record(topic, b"before"))
        with pytest.raises(ChangedItsMindError):
            await send_and_change_ones_mind(publisher, a_record(topic, b"aborted"))
        await send_all(publisher, a_record(topic, b"after"))
    assert await values(access, topic, at_least=2) == [b"before", b"after"]
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=access.bootstrap, auto_offset_reset="earliest"
    ) as uncommitted:
        seen = [await asyncio.wait_for(uncommitted.getone(), 10) for _ in range(3)]
    assert [message.value for message in seen] == [b"before", b"aborted", b"after"]


async def test_a_transaction_with_a_record_that_is_refused_commits_nothing(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    narrow = await make_topic(extra={"max.message.bytes": "1000"})
    async with TransactionalPublisher(access, an_id(), blobs=blobs) as publisher:
        with pytest.raises(RejectedError, match="MessageSizeTooLarge"):
            await send_all(publisher, a_record(topic, b"small"), a_record(narrow, urandom(2_000)))
    async with TransactionalPublisher(access, an_id(), blobs=blobs) as publisher:
        await send_all(publisher, a_record(topic, b"later"))
    assert await values(access, topic, at_least=1) == [b"later"]


async def test_offsets_commit_with_the_outputs_and_not_without(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic, group = await make_topic(), an_id()

    async def send_offset_and_change_ones_mind(publisher: TransactionalPublisher, offset: int) -> None:
        async with publisher.transaction():
            await publisher.send_offsets({Place(topic, 0): offset}, group=group)
            raise ChangedItsMindError

    async with TransactionalPublisher(access, an_id(), blobs=blobs) as publisher:
        async with publisher.transaction():
            await publisher.send_offsets({Place(topic, 0): 7}, group=group)
        with pytest.raises(ChangedItsMindError):
            await send_offset_and_change_ones_mind(publisher, 9)
    async with AIOKafkaConsumer(bootstrap_servers=access.bootstrap, group_id=group) as consumer:
        assert await consumer.committed(TopicPartition(topic, 0)) == 7


async def test_a_new_owner_fences_the_old_one_and_ends_its_open_transaction(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic, transactional_id = await make_topic(), an_id()

    async def be_overtaken(old: TransactionalPublisher) -> None:
        async with old.transaction():
            await old.send_record(a_record(topic, b"old, under way"))
            await old.delivered()
            async with TransactionalPublisher(access, transactional_id, blobs=blobs) as new:
                await send_all(new, a_record(topic, b"new"))
            assert await values(access, topic, at_least=1) == [b"new"]

    async with TransactionalPublisher(access, transactional_id, blobs=blobs) as old:
        with pytest.raises(ConflictError) as fenced:
            await be_overtaken(old)
    assert fenced.value.reason == "fenced"
    assert await values(access, topic) == [b"new"]


async def test_a_fenced_owner_cannot_begin_again(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic, transactional_id = await make_topic(), an_id()
    async with TransactionalPublisher(access, transactional_id, blobs=blobs) as old:
        async with TransactionalPublisher(access, transactional_id, blobs=blobs):
            pass
        for _ in range(2):
            with pytest.raises(ConflictError) as fenced:
                await send_all(old, a_record(topic, b"too late"))
            assert fenced.value.reason == "fenced"
    assert await values(access, topic) == []


async def test_an_orphaned_transaction_hides_later_records_no_longer_than_its_timeout(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()

    async def be_orphaned(orphan: TransactionalPublisher) -> None:
        async with orphan.transaction():
            await orphan.send_record(a_record(topic, b"orphan"))
            await orphan.delivered()
            async with TransactionalPublisher(access, an_id(), blobs=blobs) as other:
                await send_all(other, a_record(topic, b"other"))
            assert await values(access, topic, at_least=1) == [b"other"]

    limits = BusLimits(transaction_timeout_ms=3_000)
    async with TransactionalPublisher(access, an_id(), blobs=blobs, limits=limits) as orphan:
        with pytest.raises(ConflictError) as overtaken:
            await be_orphaned(orphan)
    assert overtaken.value.reason == "fenced"
    assert await values(access, topic) == [b"other"]
