"""A model so small that a step takes milliseconds, and batches for it."""

from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from recipes.sao.recipe import SAOOptions
from schemas.artifacts import manifest_of
from schemas.events import BatchSealed, ExperienceAssembled
from schemas.ids import BatchId, ExperienceId, derived_id
from schemas.settings import TrainingSettings
from tests.builders import (
    a_batch_sealed,
    an_experience_assembled,
    pack_logprobs,
    pack_mask,
    pack_temperatures,
    pack_tokens,
)
from trainers.batch import Batch
from trainers.build import Blueprint
from trainers.model import Lora
from trainers.ranks import Ranks, open_ranks

VOCAB_SIZE = 96
SAO_OBJECTIVE = "recipes.sao.objective:SAOObjective"


def save_tiny_model(
    folder: Path, *, seed: int = 0, is_tied: bool = True, head_dim: int | None = None
) -> Path:
    """Write a two-layer Llama with random weights."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=256,
        tie_word_embeddings=is_tied,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
        model: PreTrainedModel = made
    model.save_pretrained(folder)
    return folder


def a_blueprint(folder: Path, *, lora: Lora | None = None, training: Any = None, **options: Any) -> Blueprint:
    """Give what a tiny learner is made of; rates high enough to see something move."""
    settings = {"threads": 1, "learning_rate": 1e-3, "pack_tokens_max": 64} | (training or {})
    return Blueprint(
        model_folder=folder,
        objective=SAO_OBJECTIVE,
        options=SAOOptions(**options),
        lora=lora,
        training=TrainingSettings(**settings),
    )


def random_experience(rng: np.random.Generator, *, index: int, **changes: Any) -> ExperienceAssembled:
    """Build a sample of one or two turns, each a prompt and an answer."""
    lengths = rng.integers(1, 9, size=2 * int(rng.integers(1, 3)))
    mask = np.repeat(np.arange(len(lengths)) % 2, lengths)
    num = int(lengths.sum())
    fields: dict[str, Any] = {
        "experience_id": ExperienceId(derived_id("test", str(index), str(rng.integers(2**40)))),
        "token_ids": pack_tokens(rng.integers(0, VOCAB_SIZE, size=num).tolist()),
        "loss_mask": pack_mask(mask.tolist()),
        "logprobs": pack_logprobs((mask * -(3 + 3 * rng.random(num))).tolist()),
        "temperatures": pack_temperatures(np.where(mask, rng.choice([1.0, 0.7]), 1.0).tolist()),
        "num_prompt_tokens": int(lengths[0]),
        "reward": float(rng.random()),
    }
    return an_experience_assembled(**(fields | changes))


def a_batch(seq: int, *, num_samples: int = 5, folder: Path | None = None, **changes: Any) -> Batch:
    """Build batch number `seq`, always the same one, on a base folder."""
    rng = np.random.default_rng(seq)
    experiences = tuple(random_experience(rng, index=index) for index in range(num_samples))
    return batch_of(experiences, seq, folder=folder, **changes)


def batch_of(
    experiences: Sequence[ExperienceAssembled], seq: int, *, folder: Path | None = None, **changes: Any
) -> Batch:
    """Seal these samples."""
    fields: dict[str, Any] = {
        "batch_id": BatchId(derived_id("batch", str(seq))),
        "batch_seq": seq,
        "experience_ids": tuple(experience.experience_id for experience in experiences),
    }
    if folder is not None:
        fields["base_artifact_uri"] = folder.as_uri()
        fields["base_content_sha256"] = manifest_of(folder).content_sha256
    sealed: BatchSealed = a_batch_sealed(**(fields | changes))
    return Batch(sealed=sealed, experiences=tuple(experiences), next_offset=10 * (seq + 1))


def alone() -> Ranks:
    """Open a group of one in this process; close it afterwards."""
    torch.set_num_threads(1)
    return open_ranks(
        rank=0,
        size=1,
        rendezvous=None,
        device=torch.device("cpu"),
        timeout_s=60,
    )


def run_ranks(num_ranks: int, act: Callable[..., None], folder: Path, *arguments: Any) -> None:
    """Run `act(ranks, *arguments)` in processes that form a group; fail when one of them fails."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rendezvous").unlink(missing_ok=True)
    children = start_ranks(num_ranks, act, folder, *arguments)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * num_ranks


def start_ranks(
    num_ranks: int, act: Callable[..., None], folder: Path, *arguments: Any
) -> list[ForkServerProcess]:
    """Start processes that form a group; forked from a server that has imported torch already."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.tiny"])
    children = [
        context.Process(target=_as_rank, args=(rank, num_ranks, act, folder, arguments))
        for rank in range(num_ranks)
    ]
    for child in children:
        child.start()
    return children


def _as_rank(
    rank: int, num_ranks: int, act: Callable[..., None], folder: Path, arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    ranks = open_ranks(
        rank=rank,
        size=num_ranks,
        rendezvous=(folder / "rendezvous").as_uri(),
        device=torch.device("cpu"),
        timeout_s=120,
    )
    try:
        act(ranks, *arguments)
    finally:
        ranks.close()
