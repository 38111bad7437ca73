"""Finiteness and shapes, against numpy's and torch's own words."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from release.gate import TensorFacts
from release.safetensors import read_shapes, read_tensors

FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e5m2, torch.float8_e4m3fn]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@given(bits=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bits_are_finite_exactly_when_torch_says_so(
    tmp_path: Path, dtype: torch.dtype, bits: list[int]
) -> None:
    raw = torch.from_numpy(np.array(bits, dtype="<u8"))
    tensor = raw.view(torch.uint8).view(dtype).clone()
    save_file({"t": tensor}, tmp_path / "one.safetensors")
    expected = bool(torch.isfinite(tensor.to(torch.float64)).all())
    assert read_tensors(tmp_path / "one.safetensors") == {
        "t": TensorFacts(shape=tuple(tensor.shape), is_finite=expected)
    }


def test_integers_are_finite_and_empty_tensors_too(tmp_path: Path) -> None:
    tensors = {"i": torch.full((2, 3), -1, dtype=torch.int32), "e": torch.zeros((0, 4))}
    save_file(tensors, tmp_path / "two.safetensors")
    found = read_tensors(tmp_path / "two.safetensors")
    assert found["i"] == TensorFacts(shape=(2, 3), is_finite=True)
    assert found["e"] == TensorFacts(shape=(0, 4), is_finite=True)
    assert read_shapes(tmp_path / "two.safetensors") == {"i": (2, 3), "e": (0, 4)}


def file_of(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x05",
        (2**40).to_bytes(8, "little") + b"{}",
        file_of([1, 2]),
        file_of({"t": 3}),
        file_of({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234"),
        file_of({"t": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, b"12345678"),
        file_of({"t": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, b"12345678"),
        file_of({"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, b"12345678"),
    ],
)
def test_what_is_no_safetensors_has_no_tensors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "none.safetensors"
    path.write_bytes(data)
    assert read_tensors(path) == {}
