"""Shell: one rank on the first GPU, and a model that attention there can do."""

from pathlib import Path

import pytest
import torch

from tests.tiny import save_tiny_model
from trainers.ranks import Ranks, open_ranks

HEAD_DIM = 16
"""The least that flex attention's kernel takes."""

needs_cuda = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def on_cuda() -> Ranks:
    """Open a group of one on the GPU; close it afterwards."""
    return open_ranks(rank=0, size=1, rendezvous=None, device=torch.device("cuda", 0), timeout_s=60)


def save_model(folder: Path) -> Path:
    """Write a tiny model whose heads are wide enough."""
    return save_tiny_model(folder, head_dim=HEAD_DIM)
