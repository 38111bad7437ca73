"""A candidate is staged while it is judged: its swap begins with the pause. The engine plays a script."""

from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from schemas.artifacts import manifest_of
from schemas.events import ArtifactKind, CandidateTrained, SwapFailed
from schemas.ids import ReleaseId, ScenarioName
from schemas.manifest import MANIFEST_NAME
from tests.builders import a_candidate_trained
from tests.integration.swap.conftest import ScriptedEngine
from tests.integration.swap.test_swaps import gateway, serves
from tests.swap_rig import SCENARIO, a_release_row, until


def a_candidate(export: Path, base: dict[str, Any], **changes: Any) -> CandidateTrained:
    """An export that is announced, with its manifest."""
    (export / MANIFEST_NAME).write_bytes(manifest_of(export).encode())
    fields: dict[str, Any] = {
        "scenario": ScenarioName(SCENARIO),
        "kind": ArtifactKind.CHECKPOINT,
        "base_release_id": ReleaseId(base["release_id"]),
        "artifact_uri": export.as_uri(),
    }
    return a_candidate_trained(**(fields | changes))


async def test_a_candidate_is_staged_while_it_is_judged_and_its_swap_begins_with_the_pause(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        await rig.swapping.hear(a_candidate(releases[1], a_release_row(0, base)))
        await until(lambda: engine.weights.phase == "ready")
        assert rig.serving_seq == 0
        row = a_release_row(1, releases[1])
        swapped = await rig.swap(row)
        assert engine.weights.calls == ["start", "stage", "pause", "finish", "resume"]
        assert (swapped.release_id, swapped.num_bytes) == (row["release_id"], 7)
        (order,) = engine.weights.orders
        assert (Path(order["folder"]) / "model.safetensors").read_bytes() == b"release-1"
        assert Path(engine.kept or "").name == row["content_sha256"], (
            "an engine that is restarted starts from a whole model"
        )
        await rig.swap(a_release_row(2, releases[2]))
        assert engine.weights.calls.count("stage") == 2, "what nobody announced is staged when it is wanted"


async def test_another_release_that_is_wanted_takes_the_place_of_what_was_staged_ahead(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        engine.weights.stages_slowly = True
        await rig.swapping.hear(a_candidate(releases[1], a_release_row(0, base)))
        await until(lambda: len(engine.weights.orders) == 1)
        engine.weights.stages_slowly = False
        await rig.swap(a_release_row(1, releases[2]))  # without waiting for the end of that staging
        assert len(engine.weights.orders) == 2
        assert await rig.told(SwapFailed, 0) == [], "nobody had requested it"
        assert rig.serving_seq == 1


async def test_a_staging_ahead_that_fails_is_nobodys_failure(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    engine.weights.fails.add("stage")
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        await rig.swapping.hear(a_candidate(releases[1], a_release_row(0, base)))
        await until(lambda: not engine.weights.is_open and "stage" in engine.weights.calls)
        engine.weights.fails.clear()
        await rig.swap(a_release_row(1, releases[1]))
        assert await rig.told(SwapFailed, 0) == []


async def test_an_engine_that_lost_what_was_staged_ahead_answers_on_and_is_given_it_again(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        with capture_logs() as logs:
            await rig.swapping.hear(a_candidate(releases[1], a_release_row(0, base)))
            await until(lambda: any(line["event"] == "staged_ahead" for line in logs))
        engine.weights.phase, engine.weights.is_open = "idle", False
        await rig.swap(a_release_row(1, releases[1]))
        assert engine.weights.calls[2:] == ["pause", "resume", "start", "stage", "pause", "finish", "resume"]
        assert await rig.told(SwapFailed, 0) == []


async def test_what_was_staged_of_files_that_are_not_what_they_should_be_is_never_served(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        export = releases[3]
        (export / "model.safetensors").write_bytes(b"release-1")
        candidate = a_candidate(export, a_release_row(0, base))
        (export / "model.safetensors").write_bytes(b"release-X")
        await rig.swapping.hear(candidate)
        await until(lambda: engine.weights.phase == "ready")
        await rig.swap(a_release_row(1, releases[1]))
        assert engine.weights.calls.count("stage") == 2
        assert (Path(engine.weights.orders[-1]["folder"]) / "model.safetensors").read_bytes() == b"release-1"
