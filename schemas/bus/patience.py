"""Shell: aiokafka made to wait between its questions while the cluster has no answer.

When a partition has no leader, or no broker answers, aiokafka 0.14 asks for metadata again at once, for ever:
a busy loop that starves everything else in its event loop (seen: 50 attempts in 60 ms). There is no setting
for it, so its client is wrapped here; Java's client waits likewise.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

_PAUSE_S = 0.25


def be_patient(client: Any) -> None:
    """Make an `AIOKafkaClient` pause after metadata that does not help; `client` is not started yet."""
    update = client._metadata_update

    async def update_and_rest(cluster: Any, topics: Iterable[str] | None) -> bool:
        is_updated = bool(await update(cluster, topics))
        if not is_updated or not all(_has_leaders(cluster, topic) for topic in topics or ()):
            await asyncio.sleep(_PAUSE_S)
        return is_updated

    client._metadata_update = update_and_rest


def _has_leaders(cluster: Any, topic: str) -> bool:
    partitions = cluster.partitions_for_topic(topic)
    return bool(partitions) and cluster.available_partitions_for_topic(topic) == partitions
