"""Stream workers, the long forms: a hundred kills under live traffic, and a topic taken away from them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from deploy.embedded.kafka import Kafka
from schemas.events import EventRejected
from schemas.records import Outgoing
from schemas.topics import INTERACTIONS, REJECTED, SESSION_STATE
from tests.integration.streams.test_chain import feed, kill_again_and_again
from tests.streams_rig import a_rig

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(5_400)]


async def test_a_hundred_kills_lose_nothing_and_double_nothing(
    kafka_factory: Callable[[], Kafka], tmp_path: Path
) -> None:
    """Issue 5: 20,000 events, two workers, rebalances included; read_committed."""
    async with a_rig(kafka_factory().bootstrap, tmp_path) as rig:
        await kill_again_and_again(rig, num_kills=100, num_conversations=3_400, seed=5)
        assert len(await rig.all_records(INTERACTIONS)) >= 20_000


async def test_a_topic_that_vanishes_stops_the_worker_and_nothing_is_committed(
    kafka_factory: Callable[[], Kafka], tmp_path: Path
) -> None:
    """What must be refused is not passed over: the next worker, which creates the topic, refuses it."""
    async with a_rig(kafka_factory().bootstrap, tmp_path) as rig:
        await rig.configure()
        worker = rig.start_worker()
        await feed(rig, "before", 5)
        await rig.settled()
        admin = AIOKafkaAdminClient(bootstrap_servers=rig.access.bootstrap)
        await admin.start()
        await admin.delete_topics([REJECTED])
        await admin.close()
        state = await rig.records(SESSION_STATE, 0)
        poison = Outgoing(topic=INTERACTIONS, key=b"k", value=b"poison", partition=0)
        await rig.publisher.publish_record(poison)
        assert worker.wait(150) == 70
        assert await rig.records(SESSION_STATE, 0) == state
        rig.start_worker()
        (refused,) = await rig.until(REJECTED, EventRejected, 1)
        assert (refused.key, refused.value) == (poison.key, poison.value)
        await rig.settled()
