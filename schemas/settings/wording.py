"""Pure: what a validator found, said as everywhere here: expected, got, what to do."""

import json
import re
from typing import Any

_PARSING = re.compile(r", unable to .*$")
_WORDS = {
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid dictionary": "keys and values",
    "a valid mapping": "keys and values",
    "a valid string": "text",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
}
_VALUE_CHARS_MAX = 80
_USER_INFO = re.compile(r"//[^/@\s\"']+@")
"""Name and password within an address."""


def said_of(detail: Any, *, is_hidden: bool) -> str:
    """Word one finding of pydantic; hidden values are not shown."""
    said = str(detail["msg"])
    if detail["type"] == "missing":
        return "expected a value, got none: add it"
    if detail["type"] == "value_error":
        text = said.removeprefix("Value error, ")
        return _masked(text) if ", got " in text else f"{text}, got {_shown(detail['input'], is_hidden)}"
    return f"expected {_expectation(said)}, got {_shown(detail['input'], is_hidden)}"


def _expectation(said: str) -> str:
    said = _PARSING.sub("", said)
    _, should, rest = said.partition(" should ")
    if not should:
        return said
    rest = rest.removeprefix("be ") if rest.startswith("be ") else f"it to {rest}"
    return _WORDS.get(rest, f"a value {rest}" if rest.startswith(("greater", "less")) else rest)


def _shown(value: Any, is_hidden: bool) -> str:
    if is_hidden:
        return "another"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = repr(value)
    text = _masked(text)
    return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 1] + "…"


def _masked(text: str) -> str:
    return _USER_INFO.sub("//********@", text)
