"""lakeFS stops in the middle of a publication and comes back: the publication completes, whole."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.embedded.lakefs import Lakefs, LakefsOptions
from deploy.ports import free_port
from schemas.artifact_fetch import LakefsAccess
from schemas.bus import KafkaAccess
from schemas.ids import ScenarioName
from tests.release_rig import ReleaseRig, make_rig

pytestmark = [pytest.mark.kafka, pytest.mark.lakefs, pytest.mark.faults]


@pytest.fixture
def server(cache_dir: Path, make_state_dir: Callable[[str], Path]) -> Iterator[Lakefs]:
    """A lakeFS of one test alone."""
    server = Lakefs(
        LakefsOptions(state_dir=make_state_dir("own-lakefs"), cache_dir=cache_dir, port=free_port())
    )
    server.prepare()
    try:
        server.start()
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_rig(topics: KafkaAccess, server: Lakefs, tmp_path: Path) -> ReleaseRig:
    """A scenario on that server."""
    access = LakefsAccess(
        endpoint=server.url,
        access_key_id=server.credentials.access_key_id,
        secret_access_key=server.credentials.secret_access_key,
    )
    return make_rig(topics, access, tmp_path, ScenarioName(f"s{uuid4().hex[:16]}"))


@pytest.mark.parametrize("point", ["branched", "uploaded", "committed", "merged"])
async def test_a_publication_interrupted_by_lakefs_completes_when_it_is_back(
    own_rig: ReleaseRig, server: Lakefs, point: str
) -> None:
    is_armed, is_away = False, asyncio.Event()

    def passed(at: str) -> None:
        nonlocal is_armed
        if is_armed and at == point:
            is_armed = False
            server.stop()
            is_away.set()

    async with own_rig.running(passed=passed) as service:
        first = await own_rig.until_seq(0)
        is_armed = True
        candidate = own_rig.candidate(1, first.release_id)
        await own_rig.publish(candidate)
        await is_away.wait()
        async with asyncio.timeout(60):
            while not failures(service.metrics.registry.get_sample_value, own_rig.scenario):
                await asyncio.sleep(0.05)
        server.start()
        await asyncio.to_thread(server.wait_ready)
        release = await own_rig.until_seq(1)
    assert release.candidate_id == candidate.candidate_id
    assert [release.seq for release in await own_rig.releases()] == [0, 1]
    assert len(await own_rig.chain.tags()) == 2


def failures(sample: Callable[[str, dict[str, str]], float | None], scenario: str) -> float:
    labels = {"scenario": scenario, "reason": "lakefs_failed"}
    return sample("reef_release_failures_total", labels) or 0.0
