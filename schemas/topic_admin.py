"""Shell: topics are created here, by name and never by accident, and described as the cluster has them.

Creation is idempotent. Nothing is altered: a topic that differs in what cannot be changed later is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import NoError, TopicAlreadyExistsError, for_code

from schemas.bus.access import BusLimits, KafkaAccess, client_options
from schemas.bus.failures import calling, translated, until_open
from schemas.errors import RejectedError
from schemas.topic_match import TopicFound, refusal
from schemas.topics import NUM_PARTITIONS_DEFAULT, TOPICS, TopicSpec

_POLL_S = 0.05
_CLOSE_DEADLINE_S = 10.0


async def ensure_topics(
    access: KafkaAccess,
    *,
    specs: Iterable[TopicSpec] = TOPICS.values(),
    num_partitions: int = NUM_PARTITIONS_DEFAULT,
    replication_factor: int = 1,
    limits: BusLimits | None = None,
) -> Mapping[str, TopicFound]:
    """Create the topics that are missing and give all as found.

    Raises RejectedError when a topic has other partitions, cleanup or clock than it must have.
    """
    limits = limits or BusLimits()
    wanted = {spec.name: spec for spec in specs}
    async with _admin(access, limits) as admin, calling("create the topics", limits.deadline_s):
        missing = [spec for name, spec in wanted.items() if name not in await _names(admin)]
        await _create(admin, missing, num_partitions, replication_factor)
        found = await _described(admin, wanted)
        while len(found) < len(wanted):  # a created topic shows up when the brokers have heard of it
            await asyncio.sleep(_POLL_S)
            found = await _described(admin, wanted)
    refusals = [refusal(spec, found[name], num_partitions) for name, spec in wanted.items()]
    if messages := [message for message in refusals if message is not None]:
        more = f" ({len(messages) - 1} more topics differ)" if len(messages) > 1 else ""
        raise RejectedError(messages[0] + more, reason="topic_mismatch")
    return found


async def describe_topics(
    access: KafkaAccess, names: Iterable[str] = TOPICS, *, limits: BusLimits | None = None
) -> Mapping[str, TopicFound]:
    """Give those of the topics that exist, by name."""
    limits = limits or BusLimits()
    async with _admin(access, limits) as admin, calling("describe the topics", limits.deadline_s):
        return await _described(admin, names)


@asynccontextmanager
async def _admin(access: KafkaAccess, limits: BusLimits) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**client_options(access, limits))
    try:
        await until_open(admin.start, "answer", limits.open_deadline_s)
        yield admin
    finally:
        async with calling("close a client", _CLOSE_DEADLINE_S):
            await admin.close()


async def _names(admin: AIOKafkaAdminClient) -> frozenset[str]:
    return frozenset(await admin.list_topics())


async def _create(
    admin: AIOKafkaAdminClient, specs: list[TopicSpec], num_partitions: int, replication_factor: int
) -> None:
    if not specs:
        return
    topics = [
        NewTopic(
            spec.name,
            spec.num_partitions or num_partitions,
            replication_factor,
            topic_configs=spec.config(),
        )
        for spec in specs
    ]
    response = await admin.create_topics(topics)
    for topic, code, message in response.topic_errors:
        error = for_code(code)
        if error not in (NoError, TopicAlreadyExistsError):  # another service may have been faster
            raise translated(error(message), f"create the topic {topic}")


async def _described(admin: AIOKafkaAdminClient, names: Iterable[str]) -> dict[str, TopicFound]:
    """Describe topics whose every partition has a leader; asking by name could create them."""
    wanted = set(names)
    topics = [
        topic for topic in await admin.describe_topics() if topic["topic"] in wanted and _is_ready(topic)
    ]
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic["topic"]) for topic in topics]
    configs: dict[str, dict[str, str]] = {}
    for response in await admin.describe_configs(resources) if resources else ():
        for resource in response.to_object()["resources"]:
            if resource["error_code"]:
                raise translated(
                    for_code(resource["error_code"])(resource["error_message"]), "describe a topic"
                )
            entries = resource["config_entries"]
            configs[resource["resource_name"]] = {e["config_names"]: e["config_value"] for e in entries}
    return {
        topic["topic"]: TopicFound(
            name=topic["topic"], num_partitions=len(topic["partitions"]), config=configs[topic["topic"]]
        )
        for topic in topics
    }


def _is_ready(topic: Mapping[str, Any]) -> bool:
    return bool(topic["partitions"]) and all(partition["leader"] >= 0 for partition in topic["partitions"])
