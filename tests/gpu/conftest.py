"""Fixtures of a GPU: each test compiles for itself, so that none depends on those before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu.cuda import on_cuda, save_model
from trainers.ranks import Ranks


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.cuda.empty_cache()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("wide") / "model")


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    ranks = on_cuda()
    yield ranks
    ranks.close()
