"""Each batch starts from the release that it names, whatever came before; a failure leaves no trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from schemas.artifacts import read_manifest, verify_folder
from schemas.ids import Sha256
from tests.builders import pack_logprobs
from tests.tiny import a_batch, a_blueprint, alone, run_ranks, save_tiny_model
from tests.trainer_runs import Alter, as_it_is, events_in, facts, go_on, path_of
from trainers.batch import Batch
from trainers.build import build
from trainers.export import network_name_of
from trainers.model import Lora
from trainers.packing import pack
from trainers.weights import put_weights, trainable

LORA = Lora(rank=4, alpha=8.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def events_of(
    folder: Path,
    model: Path,
    num_batches: int,
    *,
    num_ranks: int = 1,
    changes: dict[str, Any] | None = None,
    bases: dict[int, int] | None = None,
    alter: Alter = as_it_is,
) -> list[dict[str, Any]]:
    """Run a trainer of its own to the end, and give what it announced."""
    folder.mkdir(parents=True, exist_ok=True)
    run_ranks(num_ranks, go_on, folder, folder, model, num_batches, (None, 0), changes, bases, alter)
    return events_in(folder / "events.jsonl")


def only_batch_one_is_nan(batch: Batch) -> Batch:
    return with_nan(batch) if batch.sealed.batch_seq == 1 else batch


def with_nan(batch: Batch) -> Batch:
    first = batch.experiences[0]
    bad = replace(first, logprobs=pack_logprobs([float("nan")] * len(first.loss_mask)))
    return replace(batch, experiences=(bad, *batch.experiences[1:]))


def only_batch_zero_is_nan(batch: Batch) -> Batch:
    return with_nan(batch) if batch.sealed.batch_seq == 0 else batch


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("critic", ["head", "separate"])
def test_a_batch_that_is_not_finite_fails_and_the_next_trains_from_clean_weights(
    model: Path, tmp_path: Path, num_ranks: int, critic: str
) -> None:
    changes = {"critic": critic}
    failed, trained = (
        events_of(tmp_path / name, model, 2, num_ranks=num_ranks, changes=changes, alter=alter)
        for name, alter in (("nan", only_batch_zero_is_nan), ("skipped", only_batch_zero_is_empty))
    )
    assert [event.get("reason") for event in failed] == ["non_finite", None]
    assert [event.get("reason") for event in trained] == ["incomplete_batch", None]
    assert failed[1]["manifest_sha256"] == trained[1]["manifest_sha256"]


def only_batch_zero_is_empty(batch: Batch) -> Batch:
    """A batch that fails before it touches any weight: what comes after it is clean for certain."""
    return replace(batch, experiences=()) if batch.sealed.batch_seq == 0 else batch


def test_a_failure_in_the_middle_goes_back_to_the_last_candidate(model: Path, tmp_path: Path) -> None:
    events = events_of(tmp_path, model, 3, alter=only_batch_one_is_nan)
    assert [event.get("optimizer", "failed") for event in events] == ["fresh", "failed", "kept"]
    assert "look at the batch" in events[1]["detail"]


def test_the_trainer_goes_on_from_its_own_candidate_while_it_is_published(
    model: Path, tmp_path: Path
) -> None:
    events = events_of(tmp_path, model, 4)
    assert [event["optimizer"] for event in events] == ["fresh", "kept", "kept", "kept"]
    assert [event["step"] for event in events] == [1, 2, 3, 4]


def test_after_a_rejection_the_next_batch_starts_from_the_served_release(model: Path, tmp_path: Path) -> None:
    """CASES 10: batch 2's candidate is rejected, so batch 3 is based on what batch 1 made."""
    events = events_of(tmp_path / "rejected", model, 4, bases={3: 1})
    assert [event["optimizer"] for event in events] == ["fresh", "kept", "kept", "restored"]
    assert events[3]["step"] == 3
    manifest, _ = read_manifest(path_of(events[3]["artifact_uri"]))
    assert manifest.base_content_sha256 == events[1]["content"]


def test_a_rejected_batch_leaves_no_trace_in_the_next(model: Path, tmp_path: Path) -> None:
    """CASES 10: the same bytes as if the rejected batch had failed before it touched anything."""
    rejected = events_of(tmp_path / "rejected", model, 3, bases={2: 0})
    failed = events_of(tmp_path / "failed", model, 3, alter=only_batch_one_is_empty)
    assert rejected[2]["optimizer"] == "restored"
    assert failed[2]["optimizer"] == "kept"
    assert rejected[2]["content"] == failed[2]["content"] != rejected[1]["content"]


def only_batch_one_is_empty(batch: Batch) -> Batch:
    return replace(batch, experiences=()) if batch.sealed.batch_seq == 1 else batch


@pytest.mark.parametrize("changes", [{}, {"lora": LORA}], ids=["full", "lora"])
def test_a_base_that_no_checkpoint_holds_is_loaded_from_its_release(
    model: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    events = events_of(tmp_path, model, 2, changes=changes, bases={1: -1})
    assert [event["optimizer"] for event in events] == ["fresh", "fresh"]
    manifest, _ = read_manifest(path_of(events[1]["artifact_uri"]))
    assert manifest.base_content_sha256 != events[0]["content"]


def test_a_base_that_is_broken_fails_its_batch_alone(model: Path, tmp_path: Path) -> None:
    events = events_of(tmp_path, model, 3, alter=batch_one_has_a_strange_base)
    assert [event.get("reason") for event in events] == [None, "base_unavailable", None]


def batch_one_has_a_strange_base(batch: Batch) -> Batch:
    if batch.sealed.batch_seq != 1:
        return batch
    return replace(batch, sealed=replace(batch.sealed, base_content_sha256=Sha256("0" * 64)))


def test_a_batch_of_one_on_two_ranks_ends(model: Path, tmp_path: Path) -> None:
    events = events_of(tmp_path, model, 2, num_ranks=2, alter=only_the_first_sample)
    assert [event["batch_seq"] for event in events] == [0, 1]


def only_the_first_sample(batch: Batch) -> Batch:
    first = batch.experiences[0]
    sealed = replace(batch.sealed, experience_ids=(first.experience_id,))
    return replace(batch, sealed=sealed, experiences=(first,))


def test_a_warm_up_batch_publishes_nothing_and_keeps_its_base(model: Path, tmp_path: Path) -> None:
    events = events_of(tmp_path, model, 3, changes={"critic_warmup_batches": 2}, bases={1: -1, 2: -1})
    assert [event["is_publishable"] for event in events] == [False, False, True]
    assert [event["optimizer"] for event in events] == ["fresh", "kept", "kept"]
    assert [event["step"] for event in events] == [0, 0, 1]
    assert events[0]["artifact_uri"] == model.as_uri()


def test_an_export_is_what_its_manifest_says_in_bf16_under_the_base_models_names(
    model: Path, tmp_path: Path
) -> None:
    (event,) = events_of(tmp_path, model, 1)
    folder = path_of(event["artifact_uri"])
    manifest, _ = read_manifest(folder)
    verify_folder(folder, manifest)
    assert manifest.content_sha256 == event["content"]
    assert not {"step_s", "tokens_per_s"} & manifest.metrics.keys()
    assert {"step_s", "tokens_per_s", "grad_norm", "sao/ratio_mean"} <= event["metrics"].keys()
    exported, base = load_file(folder / "model.safetensors"), load_file(model / "model.safetensors")
    assert exported.keys() == base.keys()
    assert {tensor.dtype for tensor in exported.values()} == {torch.bfloat16}
    assert any(not torch.equal(exported[name], base[name]) for name in base)


def test_an_adapter_does_the_same_beside_the_model_as_merged_into_it(model: Path, tmp_path: Path) -> None:
    (event,) = events_of(tmp_path / "run", model, 1, changes={"lora": LORA})
    folder = path_of(event["artifact_uri"])
    ranks = alone()
    policy = build(a_blueprint(model, lora=LORA), ranks).policy
    put_weights(trainable(policy.model), folder, name_of=network_name_of)
    packed = pack(a_batch(0, num_samples=1).experiences, 0)
    with torch.no_grad():
        ours, _ = policy(packed)
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        untouched = base(packed.token_ids[None]).logits[0, packed.action_places]
        merged = PeftModel.from_pretrained(base, folder).merge_and_unload()
        theirs = merged(packed.token_ids[None]).logits[0, packed.action_places]
    ranks.close()
    temperatures = packed.temperatures[:, None]
    torch.testing.assert_close(ours, theirs / temperatures, atol=1e-4, rtol=0)
    assert not torch.allclose(theirs, untouched, atol=1e-4)


def test_facts_differ_where_bytes_differ(model: Path, tmp_path: Path) -> None:
    one = events_of(tmp_path / "one", model, 2)
    other = events_of(tmp_path / "other", model, 2, changes={"training": {"learning_rate": 2e-3}})
    assert facts(one) != facts(other)
