"""Pure: golden bytes: what every released schema version wrote once, for ever.

`python -m tests.golden` adds the files of versions that have none, and never touches one that is there.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from schemas.events import Event


def plain(value: Any) -> Any:
    """Give a value of the language as JSON: bytes in hex, records as objects."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def differences(event: Event, golden: Any) -> list[str]:
    """Name the fields in which an event differs from what was written; later fields may have come."""
    return list(_differences(type(event).__name__, plain(event), golden))


def _differences(name: str, actual: Any, golden: Any) -> list[str]:
    if isinstance(golden, dict) and isinstance(actual, dict):
        fields = [_differences(f"{name}.{key}", actual.get(key), golden[key]) for key in golden]
        return [difference for field in fields for difference in field]
    return [] if actual == golden else [f"{name}: expected {golden}, got {actual}"]
