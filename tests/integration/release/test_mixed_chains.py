"""Weights and what is no weights in one chain: neither refuses the other, each is judged beside its own."""

import asyncio
import threading

import pytest

from release.head import Evaluated
from release.publish import merge
from schemas.artifact_fetch import FetchedArtifacts
from schemas.events import ArtifactKind, CandidateEvaluated, Event, ReleasePublished, Verdict
from tests.integration.release.test_races import brought, nothing, now_us
from tests.release_rig import WEIGHTS, ReleaseRig, has_seq

pytestmark = [pytest.mark.kafka, pytest.mark.lakefs]

TREE = {"agent.py": b"pass", "notes.safetensors": b"\xff no tensors"}


class Intruder:
    """Publishes a harness at the worst moment, as another worker would: when a candidate was evaluated."""

    def __init__(self, rig: ReleaseRig) -> None:
        self._rig, self._is_done = rig, False

    def passed(self, point: str) -> None:
        if point == "evaluated" and not self._is_done:
            self._is_done = True
            thread = threading.Thread(target=lambda: asyncio.run(self._publish()))
            thread.start()
            thread.join()

    async def _publish(self) -> None:
        chain = self._rig.chain
        releases = await chain.releases()
        tree = self._rig.candidate(2, releases[-1].release_id, kind=ArtifactKind.HARNESS, files=TREE)
        prepared = await brought(chain, tree, releases)
        await merge(chain, prepared, Evaluated(), now_us, nothing)


def verdicts(events: list[Event]) -> list[Verdict]:
    return [event.verdict for event in events if isinstance(event, CandidateEvaluated)]


async def test_weights_that_a_harness_overtook_while_they_were_evaluated_are_published_behind_it(
    rig: ReleaseRig,
) -> None:
    async with rig.running(passed=Intruder(rig).passed) as service:
        first = await rig.until_seq(0)
        candidate = rig.candidate(1, first.release_id)
        await rig.publish(candidate)
        release = await rig.until_seq(2)
        events = await rig.until(lambda events: has_seq(events, 2))
        failures = service.metrics.registry.get_sample_value(
            "reef_release_failures_total", {"scenario": rig.scenario, "reason": "merge_refused"}
        )
    assert verdicts(events) == [Verdict.ACCEPTED, Verdict.ACCEPTED]
    kinds = [event.kind for event in events if isinstance(event, ReleasePublished)]
    assert kinds == [ArtifactKind.CHECKPOINT, ArtifactKind.HARNESS, ArtifactKind.CHECKPOINT]
    assert release.candidate_id == candidate.candidate_id
    assert failures is None
    fetched = FetchedArtifacts(rig.folder / "fetched", rig.settings.lakefs)
    folder = fetched.fetch(release.artifact_uri, release.content_sha256)
    assert {path.name for path in folder.iterdir()} == {WEIGHTS, "manifest.json"}
    assert await rig.chain.tags() == {
        f"rel-{n:06d}": r.release_id for n, r in enumerate(await rig.releases())
    }


async def test_a_second_harness_on_the_first_ones_base_is_superseded_though_weights_on_it_are_not(
    rig: ReleaseRig,
) -> None:
    async with rig.running():
        base = (await rig.until_seq(0)).release_id
        await rig.publish(rig.candidate(1, base, kind=ArtifactKind.HARNESS, files=TREE))
        await rig.until_seq(1)
        late = rig.candidate(2, base, kind=ArtifactKind.HARNESS, files={"agent.py": b"other"})
        weights = rig.candidate(3, base)
        await rig.publish(late, weights)
        assert (await rig.verdict(late)).verdict is Verdict.REJECTED
        assert (await rig.until_seq(2)).candidate_id == weights.candidate_id
