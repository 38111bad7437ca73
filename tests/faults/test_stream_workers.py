"""A hundred kills of stream workers under live traffic: nothing lost, nothing doubled, every count right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.embedded.kafka import Kafka
from tests.integration.streams.test_chain import kill_again_and_again
from tests.streams_rig import a_rig

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(5_400)]


async def test_a_hundred_kills_lose_nothing_and_double_nothing(
    kafka_factory: Callable[[], Kafka], tmp_path: Path
) -> None:
    """Issue 5: 20,000 events, two workers, rebalances included; read_committed."""
    async with a_rig(kafka_factory().bootstrap, tmp_path) as rig:
        await kill_again_and_again(rig, num_kills=100, num_conversations=3_400, seed=5)
