"""Pure: a record of the log as a line for people or an object for programs, what people wrote left out.

Not the reading: deploy/commands/tail.py. Bytes of an event are texts of people or token arrays; they are
hidden unless asked for, but for the options of a scenario.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import orjson

from schemas.errors import ReefError
from schemas.events import Event
from schemas.packed import Logprobs, Mask, Temperatures, TokenIds, floats, tokens
from schemas.records import Record

OPEN_FIELDS = frozenset({"options"})
"""Bytes that nobody wrote about anybody."""
LINE_CHARS_MAX = 400
"""Of one value on a line for people."""


def record_object(record: Record, told: Event | ReefError, *, with_text: bool) -> dict[str, Any]:
    """Give a record as JSON can say it: its place, time and key, and the event or why there is none."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_us": record.timestamp_us,
        "key": None if record.key is None else key_text(record.key),
        **_told(record, told, with_text),
    }


def record_line(record: Record, told: Event | ReefError, *, when: str, with_text: bool) -> str:
    """Give a record as one line; `when` is its time as people write it."""
    shown = record_object(record, told, with_text=with_text)
    head = f"{record.partition}@{record.offset}  {when}  "
    if "event" not in shown:
        return f"{head}no event ({shown['reason']}), {shown['num_bytes']} bytes, key {shown['key']}"
    return head + " ".join([shown["type"], *(f"{name}={_short(v)}" for name, v in _said(shown["event"]))])


def event_object(value: Any, *, with_text: bool, is_open: bool = False) -> Any:
    """Give an event, or a part of one, as JSON can say it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value, with_text)
    if isinstance(value, bytes):
        return open_bytes(value) if with_text or is_open else hidden(value)
    if isinstance(value, Mapping):
        return {str(name): event_object(item, with_text=with_text) for name, item in value.items()}
    if isinstance(value, tuple):
        return [event_object(item, with_text=with_text) for item in value]
    return value


def hidden(value: bytes) -> dict[str, int]:
    """Say of bytes only how many they are."""
    return {"hidden_bytes": len(value)}


def open_bytes(value: bytes) -> Any:
    """Show bytes: JSON as what it says, other text as text, anything else in hex."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        pass
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def key_text(key: bytes) -> str:
    """Write a key: keys of the log are plain text, but for those of schemas and strangers."""
    text = key.decode("ascii", "replace")
    return text if text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text else key.hex()


def _told(record: Record, told: Event | ReefError, with_text: bool) -> dict[str, Any]:
    if not isinstance(told, ReefError):
        return {"type": type(told).__name__, "event": event_object(told, with_text=with_text)}
    value = record.value or b""
    shown = {"value": open_bytes(value)} if with_text and value else {}
    return {"reason": told.reason, "detail": str(told), "num_bytes": len(value), **shown}


def _fields(value: Any, with_text: bool) -> dict[str, Any]:
    kinds = get_type_hints(type(value))
    return {
        field.name: _field(getattr(value, field.name), kinds[field.name], field.name, with_text)
        for field in dataclasses.fields(value)
    }


def _field(value: Any, kind: Any, name: str, with_text: bool) -> Any:
    if with_text and isinstance(value, bytes):
        if kind is TokenIds:
            return tokens(TokenIds(value)).tolist()
        if kind in (Logprobs, Temperatures):
            return floats(Logprobs(value)).tolist()
        if kind is Mask:
            return list(value)
    return event_object(value, with_text=with_text, is_open=name in OPEN_FIELDS)


def _said(event: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in event.items() if value not in (None, [], {}, "", False)]


def _short(value: Any) -> str:
    if isinstance(value, dict) and list(value) == ["hidden_bytes"]:
        return f"<{value['hidden_bytes']} bytes>"
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= LINE_CHARS_MAX else text[: LINE_CHARS_MAX - 1] + "…"
