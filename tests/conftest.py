"""Fixtures that run the real programs: started once a session when first asked for, ended by pid.

Tests share what runs here, so they choose names (topics, repositories) that nobody else uses. One that
stops or kills a program makes its own with `kafka_factory`.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from deploy.embedded.engine import Engine, EngineOptions
from deploy.embedded.engine_environment import find_device
from deploy.embedded.kafka import Kafka, KafkaOptions
from deploy.embedded.lakefs import Lakefs, LakefsOptions
from deploy.ports import free_port
from deploy.process_record import reap, recorded_pid
from deploy.settings import read_cache_dir
from schemas.errors import UnavailableError

# No deadline and no check of speed: a machine that does other things too is no failure.
settings.register_profile("quick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

ENGINE_TEST_S_MAX = 900
"""A test that uses the engine may be the one that starts it, on a machine that does other things too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakefsEndpoint:
    """A lakeFS server that runs."""

    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEndpoint:
    """A vLLM server that runs."""

    url: str
    model: str
    model_dir: Path
    pid: int
    """Of the server; engine core and workers are its children."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("engine") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(ENGINE_TEST_S_MAX))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print a failure without the collector: what it finalises there parses source within a parse.

    CPython before 3.11.8 ends such a nested parse, and with it pytest, in "AST constructor recursion depth
    mismatch" (gh-106905).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """Where jars, binaries, engine environments and models are."""
    return read_cache_dir()


@pytest.fixture(scope="session")
def make_state_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make state folders, after ending what test runs that were killed left behind."""
    for path in tmp_path_factory.getbasetemp().parent.glob("pytest-*/*/run/*.json"):
        pid = None
        with suppress(UnavailableError):  # a test of spoilt records was killed too
            pid = recorded_pid(path)
        if pid is not None and psutil.Process(pid).ppid() == 1:  # its test run is gone
            reap(path)
    return tmp_path_factory.mktemp


@contextmanager
def running_kafka(state_dir: Path) -> Iterator[Kafka]:
    """Run a broker: `.stop()`, `.daemon.kill()`, `.start()`, `.wait_ready()`."""
    kafka = Kafka(KafkaOptions(state_dir=state_dir, cache_dir=read_cache_dir(), port=free_port()))
    kafka.prepare()
    try:
        kafka.start()
        kafka.wait_ready()
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture
def kafka_factory(make_state_dir: Callable[[str], Path]) -> Iterator[Callable[[], Kafka]]:
    """Make running brokers of one test's own; they end with it, since even idle ones take their share."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(running_kafka(make_state_dir("kafka")))


@pytest.fixture(scope="session")
def kafka_bootstrap(make_state_dir: Callable[[str], Path]) -> Iterator[str]:
    """The address of a real broker that all tests share: name topics so that they do not meet."""
    with running_kafka(make_state_dir("kafka")) as kafka:
        yield kafka.bootstrap


@pytest.fixture(scope="session")
def lakefs(cache_dir: Path, make_state_dir: Callable[[str], Path]) -> Iterator[LakefsEndpoint]:
    """A real lakeFS server that all tests share: name repositories so that they do not meet."""
    server = Lakefs(LakefsOptions(state_dir=make_state_dir("lakefs"), cache_dir=cache_dir, port=free_port()))
    server.prepare()
    try:
        server.start()
        server.wait_ready()
        yield LakefsEndpoint(
            url=server.url,
            access_key_id=server.credentials.access_key_id,
            secret_access_key=server.credentials.secret_access_key.get_secret_value(),
        )
    finally:
        server.stop()


@pytest.fixture(scope="session")
def tiny_engine(make_state_dir: Callable[[str], Path]) -> Iterator[EngineEndpoint]:
    """A real vLLM with two random layers: quick answers without meaning."""
    with _engine_endpoint("tiny", make_state_dir("tiny-engine")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def smollm2_engine(make_state_dir: Callable[[str], Path]) -> Iterator[EngineEndpoint]:
    """A real vLLM with SmolLM2-135M-Instruct: answers with meaning."""
    with _engine_endpoint("smollm2-135m", make_state_dir("smollm2-engine")) as endpoint:
        yield endpoint


@contextmanager
def running_engine(model: str, state_dir: Path, **options: Any) -> Iterator[Engine]:
    """Run an engine: `.daemon.kill()`, `.start()`, `.wait_ready()`; it is stopped at the end."""
    engine = Engine(
        EngineOptions(
            state_dir=state_dir,
            cache_dir=read_cache_dir(),
            port=free_port(),
            model=model,
            device=find_device(),
            **options,
        )
    )
    engine.prepare()
    try:
        engine.start()
        engine.wait_ready()
        yield engine
    finally:
        engine.stop()


@contextmanager
def _engine_endpoint(model: str, state_dir: Path) -> Iterator[EngineEndpoint]:
    with running_engine(model, state_dir) as engine:
        assert engine.daemon.pid is not None
        yield EngineEndpoint(
            url=engine.url,
            model=engine.model.name,
            model_dir=Path(engine.model.source),
            pid=engine.daemon.pid,
        )
