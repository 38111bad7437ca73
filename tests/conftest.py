"""Fixtures that run the real programs: started once a session when first asked for, ended by pid."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.embedded.kafka import Kafka, KafkaOptions
from deploy.ports import free_port
from deploy.settings import read_cache_dir


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """Where jars, binaries, engine environments and models are."""
    return read_cache_dir()


@pytest.fixture(scope="session")
def kafka_factory(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Kafka]]:
    """Make running brokers of one's own: `kafka.stop()`, `.daemon.kill()`, `.start()`, `.wait_ready()`."""
    with ExitStack() as stack:

        def make() -> Kafka:
            state_dir = tmp_path_factory.mktemp("kafka")
            kafka = Kafka(KafkaOptions(state_dir=state_dir, cache_dir=cache_dir, port=free_port()))
            kafka.prepare()
            stack.callback(kafka.stop)
            kafka.start()
            kafka.wait_ready()
            return kafka

        yield make


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_factory: Callable[[], Kafka]) -> str:
    """The address of a real broker that all tests share: name topics so that they do not meet."""
    return kafka_factory().bootstrap
