"""The trainer's step on a GPU: the numbers of the CPU, in fp32, and bf16 near them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import config as compiler

from tests.gpu.cuda import needs_cuda, on_cuda
from tests.tiny import a_batch, a_blueprint, alone
from trainers.build import build
from trainers.model import Lora
from trainers.packing import Pack, pack
from trainers.ranks import Ranks
from trainers.step import MEASURED, Learner, StepLimits, train
from trainers.weights import gathered, trainable

pytestmark = needs_cuda

LIMITS = StepLimits(pack_tokens_max=64, gradient_norm_max=1.0)
TOLERANCES = {"fp32": 1e-3, "bf16": 5e-2}
PACKED_TOLERANCES = {"fp32": 1e-5, "bf16": 5e-3}
NUM_LENGTHS = 20
KINDS: dict[str, dict[str, Any]] = {
    "head": {},
    "separate": {"critic": "separate"},
    "lora": {"lora": Lora(rank=4, alpha=8.0)},
}


def metrics_of(open_one: Callable[[], Ranks], model: Path, precision: str, **changes: Any) -> list[float]:
    ranks = open_one()
    try:
        learner = build(a_blueprint(model, training={"precision": precision}, **changes), ranks)
        metrics = [train(learner, a_batch(seq), ranks, LIMITS) for seq in range(3)]
    finally:
        ranks.close()
    return [found[name] for found in metrics for name in sorted(found.keys() - MEASURED)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", TOLERANCES)
def test_a_gpu_learns_what_a_cpu_learns(model: Path, precision: str, kind: str) -> None:
    found = metrics_of(on_cuda, model, precision, **KINDS[kind])
    expected = metrics_of(alone, model, "fp32", **KINDS[kind])
    assert found == pytest.approx(expected, rel=TOLERANCES[precision], abs=TOLERANCES[precision])


def outcome(learner: Learner, packs: list[Pack], weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits of all actions, and the gradients of their weighted sum."""
    logits = []
    shares = torch.split(weights, [len(part.action_ids) for part in packs])
    for part, share in zip(packs, shares, strict=True):
        found, _ = learner.policy(part)
        (found * share).sum().backward()
        logits.append(found.detach())
    named = trainable(learner.policy).items()
    gradients = {name: weight.grad.clone() for name, weight in named if weight.grad is not None}
    learner.optimizer.zero_grad()
    return torch.cat(logits), gradients


def apart(found: Tensor, expected: Tensor) -> float:
    """How far two tensors are apart, as a part of the second's size."""
    return float((found - expected).float().norm() / expected.float().norm())


@pytest.mark.parametrize("precision", PACKED_TOLERANCES)
def test_packed_equals_unpacked(model: Path, ranks: Ranks, precision: str) -> None:
    """And a pack whose documents are one does not."""
    tolerance = PACKED_TOLERANCES[precision]
    learner = build(a_blueprint(model, training={"precision": precision}), ranks)
    samples = a_batch(4, num_samples=40).experiences
    together = pack(samples, 0).to(ranks.device)
    weights = torch.randn(len(together.action_ids), 96, generator=torch.Generator().manual_seed(1))
    weights = weights.to(ranks.device)
    one_by_one = [pack([sample], 0).to(ranks.device) for sample in samples]
    logits, gradients = outcome(learner, [together], weights)
    alone_logits, alone_gradients = outcome(learner, one_by_one, weights)
    merged, _ = outcome(learner, [replace(together, documents=together.documents * 0)], weights)
    assert together.num_tokens > 256
    assert apart(logits, alone_logits) < tolerance < 0.1 * apart(merged, alone_logits)
    assert gradients.keys() == alone_gradients.keys() == trainable(learner.policy).keys()
    for name, gradient in gradients.items():
        assert apart(gradient, alone_gradients[name]) < 10 * tolerance, name


def weights_after_a_step(model: Path, ranks: Ranks, **training: Any) -> dict[str, Tensor]:
    learner = build(a_blueprint(model, training=training), ranks)
    train(learner, a_batch(0), ranks, LIMITS)
    return gathered(trainable(learner.policy), keeps=True)


@pytest.mark.parametrize("precision", TOLERANCES)
def test_recomputed_activations_give_the_same_step(model: Path, ranks: Ranks, precision: str) -> None:
    kept = weights_after_a_step(model, ranks, precision=precision)
    again = weights_after_a_step(model, ranks, precision=precision)
    recomputed = weights_after_a_step(model, ranks, precision=precision, has_activation_checkpointing=True)
    torch.testing.assert_close(again, kept, atol=0, rtol=0)
    torch.testing.assert_close(recomputed, kept, atol=0, rtol=0)


def test_packs_of_many_lengths_are_compiled_a_few_times_only(model: Path, ranks: Ranks) -> None:
    learner = build(a_blueprint(model), ranks)
    lengths = set()
    with compiler.patch(fail_on_recompile_limit_hit=True):
        for seq in range(NUM_LENGTHS):
            batch = a_batch(seq, num_samples=1 + 2 * seq)
            train(learner, batch, ranks, replace(LIMITS, pack_tokens_max=4_096))
            lengths.add(batch.num_tokens)
    assert len(lengths) > NUM_LENGTHS // 2
    assert learner.num_steps == NUM_LENGTHS
