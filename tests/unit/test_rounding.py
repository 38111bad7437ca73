"""Weights are rounded to bf16 by chance: right on average, the same each time, never without need."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.rounding import rounded_by_chance

LARGE = 2.0**100
FP32 = st.floats(-LARGE, LARGE, width=32, allow_subnormal=False)
BF16 = FP32.map(lambda x: torch.tensor(x).bfloat16().float().item())


@given(st.lists(BF16, min_size=1, max_size=50), st.text(max_size=5))
def test_what_is_a_bf16_number_stays_it(values: list[float], seed: str) -> None:
    found = rounded_by_chance(torch.tensor(values), seed=seed)
    assert found.dtype == torch.bfloat16
    assert found.float().tolist() == torch.tensor(values).tolist()


@given(st.lists(FP32, min_size=1, max_size=50))
def test_every_value_becomes_one_of_its_two_neighbours(values: list[float]) -> None:
    tensor = torch.tensor(values)
    found = rounded_by_chance(tensor, seed="any").float()
    assert ((found - tensor).abs() <= tensor.abs() * 2**-7).all()
    assert torch.equal(found.sign(), tensor.sign())


def test_small_steps_are_kept_on_average_where_the_nearest_would_lose_them_all() -> None:
    base = torch.full((200_000,), 0.05).bfloat16().float()
    moved = base + 1e-5
    assert torch.equal(moved.bfloat16().float(), base), "the nearest is where it began"
    found = rounded_by_chance(moved, seed="one").float()
    assert (found - base).mean().item() == pytest.approx(1e-5, rel=0.05)
    assert torch.equal(rounded_by_chance(moved, seed="one"), rounded_by_chance(moved, seed="one"))
    assert not torch.equal(rounded_by_chance(moved, seed="one"), rounded_by_chance(moved, seed="two"))


def test_what_is_no_number_stays_none_and_shapes_are_kept() -> None:
    odd = torch.tensor([[float("nan"), float("inf")], [float("-inf"), 0.0]])
    found = rounded_by_chance(odd, seed="any").float()
    assert torch.equal(found.nan_to_num(7.0), odd.nan_to_num(7.0))
    assert found.shape == (2, 2)
