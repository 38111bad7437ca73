"""The trainer's step on a GPU: the numbers of the CPU, in fp32, and bf16 near them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.tiny import a_batch, a_blueprint, alone, save_tiny_model
from trainers.build import build
from trainers.ranks import Ranks, open_ranks
from trainers.step import StepLimits, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LIMITS = StepLimits(pack_tokens_max=64, gradient_norm_max=1.0)
FP32_TOLERANCE, BF16_TOLERANCE = 1e-3, 5e-2


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "model")


def on_cuda() -> Ranks:
    return open_ranks(rank=0, size=1, rendezvous=None, device=torch.device("cuda", 0), timeout_s=60)


def losses(open_one: Callable[[], Ranks], model: Path, precision: str) -> list[float]:
    ranks = open_one()
    try:
        learner = build(a_blueprint(model, training={"precision": precision}), ranks)
        metrics = [train(learner, a_batch(seq), ranks, LIMITS) for seq in range(3)]
    finally:
        ranks.close()
    return [value for found in metrics for name, value in sorted(found.items()) if name.startswith("sao/")]


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", FP32_TOLERANCE), ("bf16", BF16_TOLERANCE)])
def test_a_gpu_learns_what_a_cpu_learns(model: Path, precision: str, tolerance: float) -> None:
    found, expected = losses(on_cuda, model, precision), losses(alone, model, "fp32")
    assert found == pytest.approx(expected, rel=tolerance, abs=tolerance)
