"""A trainer on a GPU goes on where it stood: after a restart, on a CPU, and after its memory ran out."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from schemas.errors import UnavailableError
from tests.builders import pack_logprobs, pack_mask, pack_temperatures, pack_tokens
from tests.gpu.cuda import needs_cuda, on_cuda
from tests.tiny import alone, random_experience
from tests.trainer_runs import as_it_is, events_in, facts, go_on
from trainers.batch import Batch
from trainers.checkpoint import TOO_LARGE
from trainers.model import Lora
from trainers.ranks import Ranks
from trainers.step import MEASURED

pytestmark = needs_cuda

NUM_BATCHES = 4
MIB = 1024 * 1024
LARGE_TOKENS = 262_144
"""The states between two layers alone take what is left."""
LEFT_BYTES = 256 * MIB
KINDS: dict[str, dict[str, Any]] = {
    "fp32": {"training": {"precision": "fp32"}},
    "bf16": {},
    "separate": {"critic": "separate"},
    "lora": {"lora": Lora(rank=4, alpha=8.0)},
    "recomputed": {"training": {"has_activation_checkpointing": True}},
}


def learned(
    open_one: Callable[[], Ranks],
    folder: Path,
    model: Path,
    num_batches: int = NUM_BATCHES,
    changes: dict[str, Any] | None = None,
    alter: Callable[[Batch], Batch] = as_it_is,
) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    ranks = open_one()
    try:
        go_on(ranks, folder, model, num_batches, changes=changes, alter=alter)
    finally:
        ranks.close()
    return events_in(folder / "events.jsonl")


@pytest.mark.parametrize("kind", KINDS)
def test_two_batches_a_restart_and_two_more_are_four_bit_for_bit(
    model: Path, tmp_path: Path, kind: str
) -> None:
    straight = learned(on_cuda, tmp_path / "straight", model, changes=KINDS[kind])
    learned(on_cuda, tmp_path / "stopped", model, 2, changes=KINDS[kind])
    stopped = learned(on_cuda, tmp_path / "stopped", model, changes=KINDS[kind])
    assert facts(stopped) == facts(straight)
    assert len({event["manifest_sha256"] for event in straight}) == NUM_BATCHES


def test_a_cpu_goes_on_from_the_checkpoint_of_a_gpu(model: Path, tmp_path: Path) -> None:
    expected = learned(alone, tmp_path / "cpu", model)
    learned(on_cuda, tmp_path / "both", model, 2)
    found = learned(alone, tmp_path / "both", model)
    assert [fact[:2] for fact in facts(found)] == [fact[:2] for fact in facts(expected)]
    assert {event["optimizer"] for event in found[1:]} == {"kept"}
    for name in expected[-1]["metrics"].keys() - MEASURED:
        value = expected[-1]["metrics"][name]
        assert found[-1]["metrics"][name] == pytest.approx(value, rel=5e-2, abs=5e-2), name


def too_large(batch: Batch) -> Batch:
    if batch.sealed.batch_seq != 1:
        return batch
    half = LARGE_TOKENS // 2
    sample = random_experience(
        np.random.default_rng(0),
        index=0,
        token_ids=pack_tokens([1] * LARGE_TOKENS),
        loss_mask=pack_mask([0] * half + [1] * half),
        logprobs=pack_logprobs([0.0] * half + [-4.0] * half),
        temperatures=pack_temperatures([1.0] * LARGE_TOKENS),
        num_prompt_tokens=half,
    )
    sealed = replace(batch.sealed, experience_ids=(sample.experience_id,))
    return replace(batch, experiences=(sample,), sealed=sealed)


@pytest.fixture
def little_memory() -> Iterator[None]:
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + LEFT_BYTES) / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def how_they_ended(events: list[dict[str, Any]]) -> list[str]:
    return [event.get("reason", "trained") for event in events]


@pytest.mark.usefixtures("little_memory")
def test_a_batch_too_large_for_the_gpu_is_refused_and_the_next_is_trained(
    model: Path, tmp_path: Path
) -> None:
    events = learned(on_cuda, tmp_path / "run", model, 3, changes=KINDS["fp32"], alter=too_large)
    assert how_they_ended(events) == ["trained", "out_of_memory", "trained"]


@pytest.mark.usefixtures("little_memory")
def test_one_too_large_for_fsdp_ends_the_trainer_and_is_refused_by_the_next(
    model: Path, tmp_path: Path
) -> None:
    run = partial(learned, on_cuda, tmp_path / "run", model, 3, alter=too_large)
    with pytest.raises(UnavailableError, match="memory of rank 0"):
        run()
    assert (tmp_path / "run" / TOO_LARGE).exists()
    events = run()
    assert how_they_ended(events) == ["trained", "trained", "out_of_memory", "trained"]
    assert facts(events) == facts(learned(on_cuda, tmp_path / "again", model, 3, alter=spoilt))


def spoilt(batch: Batch) -> Batch:
    """Fail the same batch for another reason."""
    return replace(batch, experiences=()) if batch.sealed.batch_seq == 1 else batch
