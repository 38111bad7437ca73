"""A broker goes under a producer, in order or by kill -9, and comes back."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from deploy.embedded.kafka import Kafka
from schemas.blobs import BlobStore
from schemas.bus import BusLimits, Delivery, KafkaAccess, Outgoing, Place, Publisher, Reader, Record
from schemas.codec import decode
from schemas.errors import UnavailableError
from schemas.events import InferenceCompleted
from schemas.topic_admin import ensure_topics
from schemas.topics import INTERACTIONS
from tests.builders import an_inference_completed
from tests.conftest import running_kafka
from tests.contract.bus.conftest import everything

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PATIENT = BusLimits(deadline_s=120.0)
NUM_BEFORE, NUM_MEANWHILE = 300, 300


@pytest.fixture(scope="module")
def broker(make_state_dir: Callable[[str], Path]) -> Iterator[Kafka]:
    """Make a broker that no other module uses."""
    with running_kafka(make_state_dir("kafka")) as kafka:
        yield kafka


async def come_back(broker: Kafka) -> None:
    await asyncio.to_thread(broker.start)
    await asyncio.to_thread(broker.wait_ready)


def a_numbered_call(number: int) -> InferenceCompleted:
    return an_inference_completed(route=f"{number % 40:016x}", started_at_us=number)


def by_route(calls: list[InferenceCompleted]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for call in calls:
        numbers[call.route].append(call.started_at_us)
    return numbers


async def calls_in_the_log(access: KafkaAccess) -> list[InferenceCompleted]:
    records = [record for n in range(8) for record in await everything(access, INTERACTIONS, n)]
    calls = [decode(record.value or b"") for record in records]
    return [call for call in calls if isinstance(call, InferenceCompleted)]


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_broker_that_goes_and_comes_back_costs_no_event_and_no_order(
    broker: Kafka, blobs: BlobStore, how: str
) -> None:
    access = KafkaAccess(bootstrap=broker.bootstrap)
    await ensure_topics(access)
    earlier = by_route(await calls_in_the_log(access))
    calls = [a_numbered_call(number) for number in range(NUM_BEFORE + NUM_MEANWHILE)]
    async with Publisher(access, blobs=blobs, limits=PATIENT) as publisher:
        deliveries = [await publisher.send(call) for call in calls[:NUM_BEFORE]]
        await deliveries[0]  # the outage meets the others wherever they are
        await asyncio.to_thread(broker.stop if how == "stop" else broker.daemon.kill)
        meanwhile = asyncio.create_task(send_all(publisher, calls[NUM_BEFORE:]))
        await come_back(broker)
        for delivery in [*deliveries, *await meanwhile]:
            await delivery
    now = by_route(await calls_in_the_log(access))
    expected = by_route(calls)
    assert len(expected) == 40
    assert now == {route: earlier.get(route, []) + numbers for route, numbers in expected.items()}


async def send_all(publisher: Publisher, calls: list[InferenceCompleted]) -> list[Delivery]:
    return [await publisher.send(call) for call in calls]


async def test_a_reader_goes_on_where_it_was_when_the_broker_is_back(broker: Kafka, blobs: BlobStore) -> None:
    access = KafkaAccess(bootstrap=broker.bootstrap)
    await ensure_topics(access)
    async with Reader(access) as reader, Publisher(access, blobs=blobs, limits=PATIENT) as publisher:
        await reader.follow({Place(INTERACTIONS, 0): await reader.end_offset(INTERACTIONS, 0)})
        to_first = partial(Outgoing, topic=INTERACTIONS, key=b"k", partition=0)
        first = await publisher.publish_record(to_first(value=b"before"))
        found = [await following(reader)]
        await asyncio.to_thread(broker.daemon.kill)
        await come_back(broker)
        await publisher.publish_record(to_first(value=b"after"))
        found.append(await following(reader))
    assert [(record.offset, record.value) for record in found] == [
        (first.offset, b"before"),
        (first.offset + 1, b"after"),
    ]


async def following(reader: Reader) -> Record:
    async with asyncio.timeout(60):
        while not (records := await reader.poll(1.0)):
            pass
    (record,) = records
    return record


async def test_a_publisher_closes_without_its_broker_and_says_what_was_not_taken(
    broker: Kafka, blobs: BlobStore
) -> None:
    access = KafkaAccess(bootstrap=broker.bootstrap)
    await ensure_topics(access)
    async with asyncio.timeout(120), Publisher(access, blobs=blobs, limits=PATIENT) as publisher:
        await asyncio.to_thread(broker.stop)
        delivery = await publisher.send_record(Outgoing(topic=INTERACTIONS, key=b"k", value=b"lost"))
    with pytest.raises(UnavailableError, match="closed before"):
        await delivery
    await come_back(broker)
