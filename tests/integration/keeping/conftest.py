"""Fixtures: the shared broker with all topics, and a gateway that keeps what it is told."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from schemas.bus import KafkaAccess
from schemas.ids import ScenarioName
from schemas.topic_admin import ensure_topics
from tests.integration.keeping.rig import KeepingRig, a_decided_scenario, running_keeping
from tests.scripted_upstream import ScriptedUpstream, running_upstream


@pytest.fixture(scope="session")
def topics(kafka_bootstrap: str) -> KafkaAccess:
    """The shared broker, with all topics of the table on it."""
    access = KafkaAccess(bootstrap=kafka_bootstrap)
    asyncio.run(ensure_topics(access))
    return access


@pytest.fixture
def scenario() -> ScenarioName:
    """A scenario of this test alone."""
    return ScenarioName(f"s{uuid4().hex[:16]}")


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    """A scripted engine."""
    with running_upstream() as found:
        yield found


@pytest.fixture
def rig(
    topics: KafkaAccess, tmp_path: Path, scenario: ScenarioName, upstream: ScriptedUpstream
) -> Iterator[KeepingRig]:
    """A gateway with one scenario of SAO, where "wrong" is worth 0."""
    decided = a_decided_scenario(scenario, feedback_scores={"wrong answer": 0.0})
    with running_keeping(topics, tmp_path, scenarios=[decided], engine_urls=[upstream.url]) as found:
        yield found
