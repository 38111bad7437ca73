"""Packed arrays: little-endian bytes, the same on every machine, and back without loss."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.packed import floats, num_tokens, tokens
from tests.builders import pack_logprobs, pack_temperatures, pack_tokens

TOKEN_MAX = (1 << 32) - 1


@given(st.lists(st.integers(0, TOKEN_MAX)))
def test_tokens_are_four_bytes_each_the_low_one_first(token_ids: list[int]) -> None:
    packed = pack_tokens(token_ids)
    assert packed == b"".join(token.to_bytes(4, "little") for token in token_ids)
    assert tokens(packed).tolist() == token_ids
    assert num_tokens(packed) == len(token_ids)


@given(st.lists(st.floats(width=32)))
def test_floats_are_four_bytes_each_and_come_back(numbers: list[float]) -> None:
    expected = struct.pack(f"<{len(numbers)}f", *numbers)
    for packed in (pack_logprobs(numbers), pack_temperatures(numbers)):
        assert [math.isnan(x) for x in floats(packed)] == [math.isnan(x) for x in numbers]
        assert [x for x in floats(packed).tolist() if not math.isnan(x)] == [
            x for x in numbers if not math.isnan(x)
        ]
        assert num_tokens(packed) == len(numbers)
        if not any(map(math.isnan, numbers)):
            assert packed == expected


def test_a_view_of_a_packed_array_cannot_change_it() -> None:
    with pytest.raises(ValueError, match="read-only"):
        tokens(pack_tokens([1, 2]))[0] = 7
