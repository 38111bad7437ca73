"""Pure: hypothesis strategies for every event type, read off its dataclass: whatever the language allows."""

import dataclasses
import types
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from schemas import packed
from schemas.events import EVENT_TYPES, Event
from tests.builders import pack_logprobs, pack_mask, pack_temperatures, pack_tokens

Kind = TypeVar("Kind")

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

finite_floats = st.floats(allow_nan=False, allow_infinity=False)
finite_f4 = st.floats(allow_nan=False, allow_infinity=False, width=32)

_BY_HINT: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=80),
    bool: st.booleans(),
    int: st.integers(LONG_MIN, LONG_MAX),
    float: finite_floats,
    bytes: st.binary(max_size=40),
    packed.TokenIds: st.lists(st.integers(0, (1 << 32) - 1), max_size=40).map(pack_tokens),
    packed.Logprobs: st.lists(finite_f4, max_size=40).map(pack_logprobs),
    packed.Temperatures: st.lists(finite_f4, max_size=40).map(pack_temperatures),
    packed.Mask: st.lists(st.integers(0, 1), max_size=80).map(pack_mask),
    packed.JsonBytes: st.text(max_size=80).map(str.encode),
    packed.OriginalBytes: st.binary(max_size=80),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 -- one return a kind of hint
    """Give any value of a type hint of the language."""
    if hint in _BY_HINT:
        return _BY_HINT[hint]
    if hasattr(hint, "__supertype__"):
        return values_of(hint.__supertype__)
    arguments = get_args(hint)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if hint is type(None):
        return st.none()
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    return st.sampled_from(hint) if issubclass(hint, StrEnum) else records_of(hint)


def records_of(kind: type[Kind]) -> st.SearchStrategy[Kind]:
    """Give any instance of a dataclass of the language."""
    hints = get_type_hints(kind)
    fields = {field.name: values_of(hints[field.name]) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return st.builds(kind, **fields)


def events() -> st.SearchStrategy[Event]:
    """Give any event of any type."""
    return st.one_of([records_of(event_type) for event_type in EVENT_TYPES])
