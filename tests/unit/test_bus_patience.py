import asyncio
from collections.abc import Collection

import pytest

from schemas.bus.patience import be_patient


class Cluster:
    """What the client knows of partitions; -1 stands for no leader."""

    def __init__(self, leaders: dict[str, list[int]]) -> None:
        self._leaders = leaders

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(len(self._leaders[topic]))) if topic in self._leaders else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        return {n for n, leader in enumerate(self._leaders.get(topic, [])) if leader >= 0}


class Client:
    """A client whose brokers answer at once, or not."""

    def __init__(self, is_answered: bool) -> None:
        self._is_answered = is_answered

    async def _metadata_update(self, cluster: Cluster, topics: Collection[str] | None) -> bool:
        return self._is_answered


async def rests(is_answered: bool, leaders: dict[str, list[int]], topics: set[str] | None) -> bool:
    client = Client(is_answered)
    be_patient(client)
    update = asyncio.ensure_future(client._metadata_update(Cluster(leaders), topics))
    await asyncio.sleep(0)  # what needs no timer is done in its first turn
    is_resting = not update.done()
    assert await update is is_answered
    return is_resting


@pytest.mark.parametrize("topics", [None, set(), {"a"}, {"a", "b"}])
async def test_metadata_with_all_leaders_is_used_at_once(topics: set[str] | None) -> None:
    assert not await rests(True, {"a": [1, 1], "b": [2]}, topics)


@pytest.mark.parametrize("topics", [None, {"a"}])
async def test_a_client_rests_when_nobody_answers(topics: set[str] | None) -> None:
    assert await rests(False, {"a": [1, 1]}, topics)


@pytest.mark.parametrize("leaders", [{"a": [1], "b": [1, -1]}, {"a": [1]}])
async def test_a_client_rests_while_a_partition_has_no_leader(leaders: dict[str, list[int]]) -> None:
    assert await rests(True, leaders, {"a", "b"})
