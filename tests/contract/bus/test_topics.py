import asyncio
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from schemas.bus import BusLimits, KafkaAccess
from schemas.errors import RejectedError, UnavailableError
from schemas.topic_admin import describe_topics, ensure_topics
from schemas.topics import SCHEMAS_LOG, TOPICS, Cleanup, TimestampType, TopicSpec

pytestmark = pytest.mark.kafka


def a_spec() -> TopicSpec:
    return TopicSpec(
        name=f"test.{uuid4().hex}",
        events=(),
        key="any",
        cleanup=Cleanup.COMPACT_DELETE,
        retention_ms=90 * 86_400_000,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )


async def create(access: KafkaAccess, spec: TopicSpec, num_partitions: int, **changed: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=access.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(spec.name, num_partitions, 1, topic_configs=spec.config() | changed)])
    await admin.close()


async def test_every_topic_is_made_as_the_table_says_and_again_is_harmless(access: KafkaAccess) -> None:
    found = await ensure_topics(access)
    assert found == await ensure_topics(access) == await describe_topics(access)
    assert set(found) == set(TOPICS)
    for name, spec in TOPICS.items():
        assert found[name].num_partitions == (1 if name == SCHEMAS_LOG else 8)
        assert spec.config().items() <= found[name].config.items()


async def test_two_services_that_start_at_once_make_one_set_of_topics(access: KafkaAccess) -> None:
    specs = [a_spec() for _ in range(5)]
    both = await asyncio.gather(*[ensure_topics(access, specs=specs, num_partitions=2) for _ in range(2)])
    assert both[0] == both[1]
    assert {found.num_partitions for found in both[0].values()} == {2}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_partitions": "3"}, "expected partitions 2, found partitions 3: set kafka.partitions"),
        ({"cleanup.policy": "delete"}, "found cleanup.policy delete: set it with kafka-configs.sh"),
        ({"message.timestamp.type": "CreateTime"}, "found message.timestamp.type CreateTime: set it with"),
    ],
)
async def test_a_topic_that_differs_for_good_is_refused_in_one_line(
    access: KafkaAccess, changed: dict[str, str], message: str
) -> None:
    spec = a_spec()
    settings = dict(changed)
    await create(access, spec, int(settings.pop("num_partitions", "2")), **settings)
    with pytest.raises(RejectedError) as refused:
        await ensure_topics(access, specs=[spec], num_partitions=2)
    assert refused.value.reason == "topic_mismatch"
    assert message in str(refused.value)
    assert spec.name in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_retention_that_an_operator_changed_is_kept(access: KafkaAccess) -> None:
    spec = a_spec()
    await create(access, spec, 2, **{"retention.ms": "86400000"})
    found = await ensure_topics(access, specs=[spec], num_partitions=2)
    assert found[spec.name].retention_ms == 86_400_000


async def test_more_replicas_than_brokers_are_refused(access: KafkaAccess) -> None:
    with pytest.raises(RejectedError, match="replication factor"):
        await ensure_topics(access, specs=[a_spec()], replication_factor=3)


async def test_an_absent_cluster_is_unavailable() -> None:
    with pytest.raises(UnavailableError):
        await describe_topics(KafkaAccess(bootstrap="127.0.0.1:1"), limits=BusLimits(open_deadline_s=0.5))
