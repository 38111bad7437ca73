"""Canonical JSON has one form for equal values (RFC 8785), and refuses what has none."""

import json
import struct
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.canonical import INTEGER_ABS_MAX, canonical, canonical_sha256
from schemas.errors import RejectedError
from schemas.recipe import recipe_digest

APPENDIX_B = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]
"""IEEE 754 bits and their form, from appendix B of RFC 8785."""

SECTION_3_2_2 = {
    "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
    "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"\u002f",
    "literals": [None, True, False],
}
SECTION_3_2_2_FORM = (
    '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
    '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
)
SECTION_3_2_3 = {
    "\u20ac": "Euro Sign",
    "\r": "Carriage Return",
    "\ufb33": "Hebrew Letter Dalet With Dagesh",
    "1": "One",
    "\U0001f600": "Emoji: Grinning Face",
    "\u0080": "Control",
    "\u00f6": "Latin Small Letter O With Diaeresis",
}
SECTION_3_2_3_ORDER = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]

safe_integers = st.integers(-(2**53) + 1, 2**53 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | safe_integers | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(("bits", "form"), APPENDIX_B)
def test_a_number_has_the_form_of_the_standard(bits: str, form: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number) == form.encode()


def test_strings_and_literals_have_the_form_of_the_standard() -> None:
    assert canonical(SECTION_3_2_2) == SECTION_3_2_2_FORM.encode()


def test_keys_are_ordered_by_their_utf16_units() -> None:
    assert list(json.loads(canonical(SECTION_3_2_3))) == SECTION_3_2_3_ORDER


@pytest.mark.parametrize(
    "value",
    [
        2**53,
        -(2**53),
        float("nan"),
        float("inf"),
        -float("inf"),
        {1: 2},
        {"a": b"bytes"},
        "\ud800",
        {"\ud800": 1},
    ],
)
def test_what_has_no_one_form_is_refused(value: Any) -> None:
    with pytest.raises(RejectedError) as refused:
        canonical([value])
    assert refused.value.reason == "not_canonical"


def test_what_nests_without_end_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RejectedError, match="flatten"):
        canonical(value)


def read_back(data: bytes) -> Any:
    """Read canonical JSON: 1e17 is written in digits, and an integer as large as that would be refused."""

    def number(digits: str) -> int | float:
        return int(digits) if abs(int(digits)) <= INTEGER_ABS_MAX else float(digits)

    return json.loads(data, parse_int=number)


@given(json_values)
def test_reading_a_canonical_form_and_writing_it_again_changes_nothing(value: Any) -> None:
    assert canonical(read_back(canonical(value))) == canonical(value)


def test_a_large_number_is_written_in_digits() -> None:
    assert canonical(1e17) == b"100000000000000000"


@given(st.dictionaries(st.text(), st.integers(-10, 10), min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical(turned) == canonical(value)


def test_one_and_one_point_zero_are_equal() -> None:
    assert canonical({"a": 1}) == canonical({"a": 1.0}) == b'{"a":1}'


def test_a_digest_is_that_of_the_canonical_bytes() -> None:
    assert canonical_sha256({"b": 1, "a": 2}) == sha256(b'{"a":2,"b":1}').hexdigest()


def test_a_recipe_digest_is_of_path_and_options_whatever_their_order() -> None:
    path = "recipes.sao.recipe:SAORecipe"
    digest = recipe_digest(path, {"a": 1, "b": 2})
    assert digest == recipe_digest(path, {"b": 2, "a": 1.0})
    assert digest == sha256(b'{"options":{"a":1,"b":2},"recipe":"recipes.sao.recipe:SAORecipe"}').hexdigest()
    assert digest != recipe_digest(path, {"a": 1, "b": 3})
    assert digest != recipe_digest("recipes.other:Recipe", {"a": 1, "b": 2})
