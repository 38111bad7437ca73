"""Which candidate is staged before anybody requests it."""

from pathlib import Path
from typing import Any

import pytest

from gateway.staging_ahead import Ahead
from gateway.target import Target, of_release
from schemas.artifacts import manifest_of
from schemas.events import ArtifactKind, CandidateTrained
from schemas.ids import CandidateId, ReleaseId
from schemas.manifest import MANIFEST_NAME
from tests.builders import SCENARIO, a_candidate_evaluated, a_candidate_trained

SERVING: Target = of_release(
    SCENARIO,
    {
        "release_id": "5" * 40,
        "release_seq": 5,
        "kind": "checkpoint",
        "content_sha256": "c" * 64,
        "artifact_uri": "lakefs://reef/5/",
        "tokenizer_digest": "d" * 64,
    },
)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "an export"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / MANIFEST_NAME).write_bytes(manifest_of(folder).encode())
    return folder


def a_candidate(export: Path, **changes: Any) -> CandidateTrained:
    fields = {
        "kind": ArtifactKind.CHECKPOINT,
        "base_release_id": SERVING.release_id,
        "artifact_uri": export.as_uri(),
    }
    return a_candidate_trained(**(fields | changes))


async def test_a_candidate_trained_from_what_serves_is_taken_once(export: Path) -> None:
    ahead = Ahead()
    assert ahead.hear(a_candidate(export))
    taken = await ahead.take(SERVING)
    assert taken is not None
    content, folder = taken
    assert folder == export
    assert (content.artifact_uri, content.content_sha256) == (
        export.as_uri(),
        manifest_of(export).content_sha256,
    )
    assert await ahead.take(SERVING) is None


@pytest.mark.parametrize("change", [{"kind": ArtifactKind.LORA}, {"is_publishable": False}])
def test_what_is_never_swapped_is_not_even_news(export: Path, change: dict[str, Any]) -> None:
    assert not Ahead().hear(a_candidate(export, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"base_release_id": ReleaseId("4" * 40)},
        {"scenario": "another"},
        {"artifact_uri": "s3://exports/1"},
        {"artifact_uri": "file:///nowhere/at/all"},
    ],
)
async def test_what_cannot_become_the_next_release_here_is_not_taken(
    export: Path, change: dict[str, Any]
) -> None:
    ahead = Ahead()
    ahead.hear(a_candidate(export, **change))
    assert await ahead.take(SERVING) is None


async def test_a_candidate_with_a_verdict_is_forgotten_and_others_verdicts_are_not_its(export: Path) -> None:
    ahead, candidate = Ahead(), a_candidate(export)
    ahead.hear(candidate)
    ahead.hear(a_candidate_evaluated(candidate_id=CandidateId("another")))
    ahead.hear(a_candidate_evaluated(candidate_id=candidate.candidate_id))
    assert await ahead.take(SERVING) is None
    ahead.hear(candidate)
    ahead.hear(a_candidate_evaluated(candidate_id=CandidateId("another")))
    assert await ahead.take(SERVING) is not None
