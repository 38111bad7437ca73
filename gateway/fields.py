"""Pure: what each field of a request must be, as tables, and the refusal of anything else by its name.

Not the meaning of fields: the dialects have that. A field that no table names is theirs to pass or to leave.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gateway.errors import FieldError

WORD_CHARS_MAX = 40
"""Of a text that a refusal quotes."""
_NAMES = MappingProxyType(
    {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a field must be."""

    words: str
    """As a refusal says it."""
    fits: Callable[[Any], bool]
    """Whether a value is of this kind."""
    fields: "Kinds | None" = None
    """What its own fields must be, if it is an object."""
    is_required: bool = False
    """It must be there; null is a field left out."""


Kinds = Mapping[str, Kind]
"""What the fields of an object must be, by name."""
NO_KINDS: Kinds = MappingProxyType({})

TEXT = Kind(words="a text", fits=lambda value: isinstance(value, str))
FLAG = Kind(words="true or false", fits=lambda value: isinstance(value, bool))
INTEGER = Kind(words="an integer", fits=lambda value: isinstance(value, int) and not isinstance(value, bool))
POSITIVE = Kind(words="a positive integer", fits=lambda value: INTEGER.fits(value) and value > 0)
OBJECT = Kind(words="an object", fits=lambda value: isinstance(value, dict))
LIST = Kind(words="a list", fits=lambda value: isinstance(value, list))


def an_object(**fields: Kind) -> Kind:
    """Give the kind of an object with these fields, and any others."""
    return replace(OBJECT, fields=fields)


def a_list_of(words: str, kind: Kind) -> Kind:
    """Give the kind of a list whose items are all of one kind."""
    return Kind(
        words=f"a list of {words}", fits=lambda value: LIST.fits(value) and all(map(kind.fits, value))
    )


TEXTS = a_list_of("texts", TEXT)
OBJECTS = a_list_of("objects", OBJECT)
SOME_OBJECTS = Kind(
    words="a list of one object or more", fits=lambda value: bool(value) and OBJECTS.fits(value)
)


def one_of(*choices: str) -> Kind:
    """Give the kind of a text out of a few."""
    return Kind(words=" or ".join(choices), fits=lambda value: isinstance(value, str) and value in choices)


def either(first: Kind, second: Kind) -> Kind:
    """Give the kind of what is of one kind or of another; their own fields are not looked at."""
    return Kind(
        words=f"{first.words} or {second.words}",
        fits=lambda value: first.fits(value) or second.fits(value),
    )


def required(kind: Kind) -> Kind:
    """Give the kind of a field that must be there."""
    return replace(kind, is_required=True)


def check_fields(given: Mapping[str, Any], kinds: Kinds, at: str = "") -> None:
    """Refuse the first field that is of another kind. Raises FieldError, which names it under `at`."""
    for name, kind in kinds.items():
        value: Any = given.get(name)
        if value is None and not kind.is_required:
            continue
        param = f"{at}.{name}" if at else name
        if not kind.fits(value):
            remedy = "set it" if kind.is_required else "correct it, or leave it out"
            got = repr(value[:WORD_CHARS_MAX]) if isinstance(value, str) else kind_of(value)
            raise FieldError(f"expected {param} to be {kind.words}, got {got}: {remedy}", param=param)
        if kind.fields:
            check_fields(value, kind.fields, param)


def kind_of(value: Any) -> str:
    """Say what came instead."""
    return _NAMES.get(type(value), "nothing" if value is None else "an object")
