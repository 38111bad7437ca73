"""A harness from a script to an agent: the real log, the real lakeFS, a gateway, and reef's own client."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reef_client import ReefClient
from reef_client.client import ReefClientError
from reef_client.skill import fetch_skill

from schemas.bus import KafkaAccess
from schemas.events import ArtifactKind, CandidateTrained, Operation, ReleasePublished
from schemas.ids import ReleaseId, ScenarioName
from tests.builders import a_roll_back_release
from tests.conftest import LakefsEndpoint
from tests.integration.keeping.chains import seen
from tests.integration.keeping.rig import KeepingRig, a_decided_scenario, running_keeping
from tests.release_rig import ReleaseRig, lakefs_access, make_rig

pytestmark = [pytest.mark.kafka, pytest.mark.lakefs]

PAGE = Path(__file__).parents[3] / "docs" / "releases.md"
SKILL = "# Skill\r\nAnswer briefly, wie im März.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A chain of every kind, and a gateway that knows it."""

    rig: KeepingRig
    scenario: ScenarioName
    releases: list[ReleasePublished]

    @property
    def client(self) -> ReefClient:
        return ReefClient(self.rig.url)

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(path, extra_headers={"x-reef-scenario": self.scenario})
        return found

    def refusal(self, path: str) -> tuple[int, str]:
        with pytest.raises(ReefClientError) as refused:
            self.get(path)
        assert refused.value.content_type == "application/json"
        code = re.search(r'"code":"(\w+)"', refused.value.body)
        return refused.value.status, code.group(1) if code else ""


def script() -> dict[str, Any]:
    """Give what the page tells people to run."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def a_tree(folder: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


async def _published(release: ReleaseRig, access: KafkaAccess, folder: Path) -> list[ReleasePublished]:
    """Publish two harnesses by the page's script, weights between them, a policy, and a rollback."""
    told = script()
    first = a_tree(folder / "one", skills__SKILL=SKILL.encode(), agent=b"pass\n", notes=b"")
    (first / "skills" / "SKILL").rename(first / "skills" / "SKILL.md")
    second = a_tree(folder / "two", agent=b"pass  # better\n")

    def made(tree: Path, base: ReleasePublished) -> CandidateTrained:
        found = told["harness_candidate"](tree, folder / "exports", release.scenario, base.release_id)
        assert isinstance(found, CandidateTrained)
        return found

    async with release.running():
        releases = [await release.until_seq(0)]
        await told["publish"](made(first, releases[0]), access.bootstrap, (folder / "blobs").as_uri())
        releases.append(await release.until_seq(1))
        await release.publish(release.candidate(2, releases[0].release_id))
        releases.append(await release.until_seq(2))
        await told["publish"](made(second, releases[1]), access.bootstrap, (folder / "blobs").as_uri())
        releases.append(await release.until_seq(3))
        policy = release.candidate(
            4, releases[2].release_id, kind=ArtifactKind.ROUTING, files={"policy.bin": b"\xff\x00"}
        )
        await release.publish(policy)
        releases.append(await release.until_seq(4))
        await release.publish(
            a_roll_back_release(
                scenario=release.scenario,
                target_release_id=ReleaseId(releases[1].release_id),
                expected_head_release_id=None,
                requested_at_us=releases[4].published_at_us,
            )
        )
        return [*releases, await release.until_seq(5)]


@pytest.fixture
def published(
    topics: KafkaAccess, lakefs: LakefsEndpoint, tmp_path: Path, scenario: ScenarioName
) -> Iterator[Published]:
    access = lakefs_access(lakefs)
    release = make_rig(topics, access, tmp_path / "release", scenario)
    releases = asyncio.run(_published(release, topics, tmp_path))
    decided = a_decided_scenario(scenario)
    with running_keeping(topics, tmp_path / "gateway", scenarios=[decided], lakefs=access) as rig:
        seen(rig, scenario, len(releases))
        yield Published(rig=rig, scenario=scenario, releases=releases)


def test_a_tree_that_a_script_published_is_pulled_to_the_byte_by_its_id_and_by_none(
    published: Published, tmp_path: Path
) -> None:
    base, first, trained, second, policy, back = published.releases
    kinds = [release.kind for release in published.releases]
    harness, checkpoint = ArtifactKind.HARNESS, ArtifactKind.CHECKPOINT
    assert kinds == [checkpoint, harness, checkpoint, harness, ArtifactKind.ROUTING, harness]
    assert (second.operation, back.operation) == (Operation.TRAINING, Operation.ROLLBACK)
    client, scenario, place = published.client, published.scenario, tmp_path / "pulled"
    assert client.harness_pull(scenario, place, version=second.release_id) == second.release_id
    assert (place / "agent").read_bytes() == b"pass  # better\n"
    assert client.harness_pull(scenario, place) == back.release_id  # the newest: the first one, brought back
    pulled = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert pulled - {".reef-harness-version"} == {"agent", "notes", "skills/SKILL.md"}
    assert (place / "skills" / "SKILL.md").read_bytes() == SKILL.encode()
    assert fetch_skill(published.rig.url, scenario) == (SKILL, back.release_id)
    versions = client.harness_versions(scenario)
    assert [row["artifact_version"] for row in versions] == [
        first.release_id,
        second.release_id,
        back.release_id,
    ]
    assert [row["metrics"].get("tasks_solved") for row in versions] == [0.8, 0.8, 0.8]
    assert published.get(f"/reef/harness?release_id={first.release_id}")["release_seq"] == 1
    _check_refusals(published, base, trained)
    _check_policy(published, policy)
    _check_what_goes_on_beside_it(published)


def _check_refusals(published: Published, *others: ReleasePublished) -> None:
    for path in ("/reef/harness?version=nowhere", *(f"/reef/harness?version={o.release_id}" for o in others)):
        assert published.refusal(path) == (404, "no_such_harness")
    assert published.refusal("/reef/harness?version=") == (400, "bad_field")
    assert published.refusal("/reef/routing?release_id=nowhere") == (404, "no_such_routing")


def _check_policy(published: Published, policy: ReleasePublished) -> None:
    assert published.refusal("/reef/routing") == (409, "not_text")
    told = published.get("/reef/routing?encoding=base64")
    assert (told["release_id"], told["files"]) == (policy.release_id, {"policy.bin": "/wA="})
    (version,) = published.get("/reef/routing/versions")["versions"]
    assert version["artifact_version"] == policy.release_id


def _check_what_goes_on_beside_it(published: Published) -> None:
    """The chain shows all kinds; what was trained is what a trainer made."""
    rows = published.get(f"/reef/scenarios/{published.scenario}/releases")["releases"]
    assert [row["release_seq"] for row in rows if row["pending"]] == [2]
    status = published.get("/reef/status")["scenarios"][published.scenario]
    assert (status["head"]["release_seq"], status["head"]["kind"]) == (5, "harness")
    assert status["last_training"]["candidate_id"] == published.releases[2].candidate_id


@pytest.mark.parametrize("kind", ["harness", "routing"])
def test_until_one_is_published_there_is_none(rig: KeepingRig, scenario: ScenarioName, kind: str) -> None:
    nothing = Published(rig=rig, scenario=scenario, releases=[])
    assert nothing.refusal(f"/reef/{kind}") == (404, f"no_such_{kind}")
    assert nothing.refusal(f"/reef/{kind}/versions") == (404, f"no_such_{kind}")
