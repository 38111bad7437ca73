import pytest
from aiokafka import AIOKafkaProducer

from schemas.blobs import BlobStore
from schemas.bus import KafkaAccess, Reader, Resolver, SchemaLog
from schemas.events import FeedbackReported, FeedbackSource
from schemas.partitions import partition_of
from schemas.topics import INTERACTIONS
from tests.builders import ROUTE, SCENARIO, TIME_US, a_receipt
from tests.unit.test_feedback_writer import example_of_the_page

RECEIPT = a_receipt()

pytestmark = pytest.mark.kafka


async def test_the_pages_example_reaches_the_partition_of_its_call_and_is_read_as_feedback(
    access: KafkaAccess, blobs: BlobStore
) -> None:
    key, value = example_of_the_page()["feedback"](SCENARIO, "report-k", RECEIPT, 0.5, "better", TIME_US)
    async with AIOKafkaProducer(bootstrap_servers=access.bootstrap, acks="all") as producer:
        placed = await producer.send_and_wait(INTERACTIONS, key=key, value=value)
    assert placed.partition == partition_of(ROUTE.encode(), 8)
    async with Reader(access) as reader, SchemaLog(access) as schema_log:
        range_read = reader.read_range(INTERACTIONS, placed.partition, placed.offset, placed.offset)
        (event,) = [await Resolver(schema_log, blobs).resolve(record) async for record in range_read]
    assert isinstance(event, FeedbackReported)
    assert (event.references, event.score, event.feedback) == ((RECEIPT,), 0.5, b'"better"')
    assert event.source is FeedbackSource.KAFKA
