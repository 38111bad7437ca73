"""Evaluators in their child process: what they measure is published, and whatever goes wrong refuses."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.model import prepare_model
from release.evaluate import InChild, evaluator_of
from release.evaluation import Content, Subject
from release.evaluation_child import NICENESS
from schemas.artifacts import manifest_of
from schemas.events import ArtifactKind, CandidateEvaluated, Verdict, VerdictReason
from tests.release_rig import ReleaseRig, has_seq, save_base_model

SCRIPTED = "tests.evaluators:Scripted"


def a_content(folder: Path) -> Content:
    return Content(
        kind=ArtifactKind.CHECKPOINT, folder=folder, content_sha256=manifest_of(folder).content_sha256
    )


def a_subject(candidate: Path, model: Path) -> Subject:
    return Subject(
        candidate=a_content(candidate),
        incumbent=a_content(model),
        model_folder=model,
        metrics={},
        device="cpu",
        engine=None,
        incumbent_scores=None,
    )


@pytest.mark.parametrize(
    ("does", "reasons"),
    [
        ("pass", ()),
        ("refuse", (VerdictReason.WORSE_THAN_INCUMBENT,)),
        ("raise", (VerdictReason.EVALUATOR_FAILED,)),
        ("die", (VerdictReason.EVALUATOR_FAILED,)),
    ],
)
async def test_an_evaluator_decides_and_one_that_fails_refuses(
    tmp_path: Path, does: str, reasons: tuple[VerdictReason, ...]
) -> None:
    model = save_base_model(tmp_path / "model")
    evaluates = evaluator_of(SCRIPTED, {"does": does}, timeout_s=60)
    measured = await evaluates.measure(a_subject(model, model))
    assert measured.reasons == reasons


async def test_an_evaluator_that_hangs_is_ended_at_its_deadline(tmp_path: Path) -> None:
    model = save_base_model(tmp_path / "model")
    evaluates = evaluator_of(SCRIPTED, {"does": "hang"}, timeout_s=3)
    measured = await evaluates.measure(a_subject(model, model))
    assert measured.reasons == (VerdictReason.EVALUATOR_FAILED,)


async def test_an_evaluator_that_is_not_there_refuses(tmp_path: Path) -> None:
    model = save_base_model(tmp_path / "model")
    measured = await evaluator_of("tests.evaluators:Nobody", {}, timeout_s=60).measure(
        a_subject(model, model)
    )
    assert measured.reasons == (VerdictReason.EVALUATOR_FAILED,)


async def test_what_was_measured_of_a_content_is_not_measured_again(tmp_path: Path) -> None:
    model, other = (save_base_model(tmp_path / name) for name in ("model", "other"))
    (other / "more.txt").write_text("a fourth file")
    evaluates = evaluator_of(SCRIPTED, {"does": "pass"}, timeout_s=60)
    first = await evaluates.measure(a_subject(other, model))
    assert first.metrics == {"score": 4.0}
    assert first.baseline_metrics["niceness"] == min(os.nice(0) + NICENESS, 19)
    second = await evaluates.measure(a_subject(model, other))
    assert second.baseline_metrics == {"score": 4.0}


@pytest.mark.kafka
@pytest.mark.lakefs
async def test_what_an_evaluator_measured_stands_in_the_verdict(rig: ReleaseRig) -> None:
    async with rig.evaluating(module=SCRIPTED, config={"does": "pass"}).running():
        first = await rig.until_seq(0)
        await rig.publish(rig.candidate(1, first.release_id))
        events = await rig.until(lambda events: has_seq(events, 1))
    verdict = next(event for event in events if isinstance(event, CandidateEvaluated))
    assert (verdict.verdict, dict(verdict.metrics)) == (Verdict.ACCEPTED, {"score": 2.0})
    assert verdict.baseline_metrics["score"] == 1.0


@pytest.mark.kafka
@pytest.mark.lakefs
async def test_a_scorer_that_raises_rejects_the_candidate_and_its_files_stay(rig: ReleaseRig) -> None:
    async with rig.evaluating(module=SCRIPTED, config={"does": "raise"}).running():
        first = await rig.until_seq(0)
        candidate = rig.candidate(1, first.release_id)
        await rig.publish(candidate)
        verdict = await rig.verdict(candidate)
    assert (verdict.verdict, verdict.reasons) == (Verdict.REJECTED, (VerdictReason.EVALUATOR_FAILED,))
    assert [release.seq for release in await rig.releases()] == [0]
    assert len(await rig.chain.prepared(f"training-{candidate.candidate_id}-")) == 1


@pytest.mark.slow
async def test_prompt_set_scores_answers_of_candidate_and_incumbent_alike(
    tmp_path: Path, cache_dir: Path
) -> None:
    model = Path(prepare_model("tiny", cache_dir).source)
    candidate = tmp_path / "candidate"
    candidate.mkdir()
    for file in model.glob("*.safetensors"):
        shutil.copy(file, candidate)
    config: dict[str, Any] = {
        "prompts": [{"prompt": "What is the capital of France?", "system": "Be brief."}, {"prompt": "Hello"}],
        "scorer": "tests.evaluators:num_characters",
        "tokens_max": 8,
    }
    evaluates = evaluator_of("prompt_set", config, timeout_s=240)
    assert isinstance(evaluates, InChild)
    subject = a_subject(candidate, model)
    equal = await evaluates.measure(subject)
    assert equal.reasons == ()
    assert equal.metrics == equal.baseline_metrics
    assert equal.metrics["score"] > 0
    better = InChild("release.prompt_set:PromptSet", config, timeout_s=240)
    better._scores[subject.incumbent.content_sha256] = {"score": equal.metrics["score"] + 1}
    assert (await better.measure(subject)).reasons == (VerdictReason.WORSE_THAN_INCUMBENT,)
    without = evaluator_of("prompt_set", {"prompts": [{"prompt": "no answer is expected"}]}, timeout_s=240)
    measured = await without.measure(subject)
    assert measured.reasons == (VerdictReason.EVALUATOR_FAILED,)
