"""Fixtures: a scenario of one test alone, on the shared broker and the shared lakeFS."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from schemas.bus import KafkaAccess
from schemas.ids import ScenarioName
from schemas.topic_admin import ensure_topics
from tests.conftest import LakefsEndpoint
from tests.release_rig import ReleaseRig, lakefs_access, make_rig


@pytest.fixture(scope="session")
def topics(kafka_bootstrap: str) -> KafkaAccess:
    """The shared broker, with all topics of the table on it."""
    access = KafkaAccess(bootstrap=kafka_bootstrap)
    asyncio.run(ensure_topics(access))
    return access


@pytest.fixture
def rig(topics: KafkaAccess, lakefs: LakefsEndpoint, tmp_path: Path) -> ReleaseRig:
    """A scenario without releases yet."""
    return make_rig(topics, lakefs_access(lakefs), tmp_path, ScenarioName(f"s{uuid4().hex[:16]}"))


@pytest.fixture
def offline_rig(lakefs: LakefsEndpoint, tmp_path: Path) -> ReleaseRig:
    """A scenario for tests that need no log."""
    nowhere = KafkaAccess(bootstrap="127.0.0.1:1")
    return make_rig(nowhere, lakefs_access(lakefs), tmp_path, ScenarioName(f"s{uuid4().hex[:16]}"))
