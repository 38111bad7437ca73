"""What a gateway does when a chain holds releases that engines do not load: nothing, and the weights stay."""

from pathlib import Path

import pytest

from schemas.events import ArtifactKind, ModelSwapped, SwapFailed, TrainingTarget
from tests.integration.swap.conftest import ScriptedEngine
from tests.integration.swap.test_swaps import call, gateway, serves
from tests.swap_rig import SCENARIO, a_release_row

TREES = [ArtifactKind.HARNESS, ArtifactKind.ROUTING]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts" / "system.txt").write_text("Be brief.")
    return folder


@pytest.mark.parametrize("kind", TREES)
async def test_a_harness_swaps_nothing_and_weights_before_and_after_it_serve(
    engine: ScriptedEngine, base: Path, releases: list[Path], tree: Path, kind: ArtifactKind
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        one, three = a_release_row(1, releases[1]), a_release_row(3, releases[3])
        await rig.swap(one)
        calls = list(engine.weights.calls)
        await rig.publish(a_release_row(2, tree, kind=kind))
        assert (await call(rig)).headers["x-reef-release-id"] == one["release_id"]
        assert rig.catalog.add(SCENARIO).wanted_release_id == one["release_id"]
        assert engine.weights.calls == calls
        await rig.swap(three)
        assert (await call(rig)).headers["x-reef-release-id"] == three["release_id"]
        assert [event.release_seq for event in await rig.told(ModelSwapped, 2)] == [1, 3]
        assert not [event for event in rig.recorder.events if isinstance(event, SwapFailed)]


async def test_a_start_serves_the_newest_weights_though_a_harness_is_the_head(
    engine: ScriptedEngine, base: Path, releases: list[Path], tree: Path
) -> None:
    one, head = a_release_row(1, releases[1]), a_release_row(2, tree, kind=ArtifactKind.HARNESS)
    async with gateway(engine, base, one, head) as rig:
        await serves(rig, 1)
        assert engine.weights.version == one["release_id"]
        await rig.swapped_to(one)
        assert rig.catalog.add(SCENARIO).first_release_id == a_release_row(0, base)["release_id"]


@pytest.mark.parametrize("target", [TrainingTarget.NONE, TrainingTarget.LORA])
async def test_where_no_weights_were_published_a_harness_leaves_the_base_model_serving(
    engine: ScriptedEngine, base: Path, tree: Path, target: TrainingTarget
) -> None:
    async with gateway(engine, base, targets={SCENARIO: target}) as rig:
        await serves(rig, 0)
        await rig.publish(a_release_row(1, tree, kind=ArtifactKind.HARNESS))
        assert (await call(rig)).headers["x-reef-release-id"] == a_release_row(0, base)["release_id"]
        assert rig.serving_seq == 0
        assert engine.weights.calls == []
