"""Pure: how each part of an event looks on the wire: the schema and the dataclass, read together.

Not the writing and reading themselves: from these forms schemas/encoders.py and schemas/decoders.py are made.

Next: schemas/encoders.py
"""

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

from schemas import packed
from schemas.varint import check_floats, check_mask, check_tokens


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""


@dataclass(frozen=True, slots=True)
class Long:
    """An integer of 64 bits."""


@dataclass(frozen=True, slots=True)
class Double:
    """A finite number."""


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Octets:
    """Bytes that are always small."""


@dataclass(frozen=True, slots=True)
class Large:
    """Bytes that may have moved into a blob."""

    is_nullable: bool
    """Null is the first branch of its union."""
    item_bytes: int | None
    """Width of a number in a packed array; None for plain bytes."""
    check: Callable[[bytes], None] | None
    """Refuses what a packed array may not hold."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A member of a closed set."""

    kind: type[StrEnum]
    """Its Python class."""
    symbols: tuple[str, ...]
    """In the order of the schema."""


@dataclass(frozen=True, slots=True)
class Nullable:
    """Something or null."""

    inner: "Form"
    """What it is when it is there."""


@dataclass(frozen=True, slots=True)
class Many:
    """A list in order."""

    item: "Form"
    """Each of it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Values by name, written in the order of the names."""

    value: "Form"
    """Each value."""


@dataclass(frozen=True, slots=True)
class Record:
    """Fields in order."""

    kind: type[Any]
    """Its dataclass."""
    fields: tuple[tuple[str, "Form"], ...]
    """Names and forms."""


Form = Text | Long | Double | Flag | Octets | Large | Symbol | Nullable | Many | Table | Record

_PRIMITIVES: dict[Any, tuple[str, Form]] = {
    str: ("string", Text()),
    bool: ("boolean", Flag()),
    int: ("long", Long()),
    float: ("double", Double()),
    bytes: ("bytes", Octets()),
}
_LARGE: dict[Any, tuple[str, Large]] = {
    packed.TokenIds: ("Packed", Large(False, 4, check_tokens)),
    packed.Logprobs: ("Packed", Large(False, 4, check_floats)),
    packed.Temperatures: ("Packed", Large(False, 4, check_floats)),
    packed.Mask: ("Packed", Large(False, 1, check_mask)),
    packed.JsonBytes: ("bytes", Large(False, None, None)),
    packed.OriginalBytes: ("bytes", Large(False, None, None)),
}


def record_form(schema: Mapping[str, Any], kind: type[Any]) -> Record:
    """Read a schema and its dataclass together. Raises ValueError where they differ."""
    return _record(schema, kind, {})


def _record(schema: Mapping[str, Any], kind: type[Any], named: dict[str, Any]) -> Record:
    named[schema["name"]] = schema
    hints = get_type_hints(kind)
    names = [field["name"] for field in schema["fields"]]
    if schema["name"] != kind.__name__ or names != [field.name for field in dataclasses.fields(kind)]:
        raise ValueError(
            f"expected the fields of {kind.__name__} in its order, got {names}: correct the .avsc"
        )
    fields = [
        (field["name"], _form(field["type"], hints[field["name"]], named)) for field in schema["fields"]
    ]
    return Record(kind, tuple(fields))


def _form(schema: Any, hint: Any, named: dict[str, Any]) -> Form:
    inner = _without_none(hint)
    if inner in _LARGE:
        return _large(schema, inner, named, is_nullable=inner is not hint)
    if inner is not hint:
        _expect(isinstance(schema, list) and len(schema) == 2 and schema[0] == "null", schema, hint)
        return Nullable(_form(schema[1], inner, named))
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    if hint in _PRIMITIVES:
        name, form = _PRIMITIVES[hint]
        _expect(schema == name, schema, hint)
        return form
    return _composite(named.get(schema, schema) if isinstance(schema, str) else schema, hint, named)


def _composite(schema: Any, hint: Any, named: dict[str, Any]) -> Form:
    origin = get_origin(hint)
    _expect(isinstance(schema, dict), schema, hint)
    match schema["type"]:
        case "array" if origin is tuple:
            return Many(_form(schema["items"], get_args(hint)[0], named))
        case "map" if origin is Mapping:
            return Table(_form(schema["values"], get_args(hint)[1], named))
        case "enum" if schema["symbols"] == [member.value for member in hint]:
            named[schema["name"]] = schema
            return Symbol(hint, tuple(schema["symbols"]))
        case "record" if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return _record(schema, hint, named)
    raise ValueError(f"expected the wire form of {hint}, got {schema}: correct the .avsc")


def _large(schema: Any, hint: Any, named: dict[str, Any], *, is_nullable: bool) -> Large:
    name, form = _LARGE[hint]
    _expect(isinstance(schema, list), schema, hint)
    for branch in schema:
        if isinstance(branch, dict):
            named[branch["name"]] = branch
    branches = [branch["name"] if isinstance(branch, dict) else branch for branch in schema]
    _expect(branches == ["null"] * is_nullable + [name, "BlobRef"], schema, hint)
    return dataclasses.replace(form, is_nullable=is_nullable)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    (inner,) = [part for part in get_args(hint) if part is not type(None)]
    return inner


def _expect(is_right: bool, schema: Any, hint: Any) -> None:
    if not is_right:
        raise ValueError(f"expected the wire form of {hint}, got {schema}: correct the .avsc")
