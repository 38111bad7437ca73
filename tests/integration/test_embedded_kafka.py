"""The embedded broker keeps what it was given, however it ends."""

from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.embedded.kafka import Kafka, num_brokers
from deploy.ports import HOST, free_port

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


async def _make_topic(bootstrap: str, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


async def _write(bootstrap: str, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        await producer.send_and_wait(topic, value)


async def _read_first(bootstrap: str, topic: str) -> bytes | None:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        value: bytes | None = (await consumer.getone()).value
        return value


async def test_a_killed_broker_comes_back_with_what_was_written(kafka_factory: Callable[[], Kafka]) -> None:
    kafka = kafka_factory()
    await _make_topic(kafka.bootstrap, "kept")
    await _write(kafka.bootstrap, "kept", b"before the kill")
    kafka.daemon.kill()
    assert not kafka.daemon.is_running()
    kafka.start()
    kafka.wait_ready()
    assert await _read_first(kafka.bootstrap, "kept") == b"before the kill"
    kafka.stop()
    assert num_brokers(*_address(kafka)) == 0


def _address(kafka: Kafka) -> tuple[str, int]:
    host, _, port = kafka.bootstrap.partition(":")
    return host, int(port)


def test_nobody_answers_on_a_free_port() -> None:
    assert num_brokers(HOST, free_port()) == 0


def test_the_shared_broker_serves(kafka_bootstrap: str) -> None:
    host, _, port = kafka_bootstrap.partition(":")
    assert num_brokers(host, int(port)) == 1
