"""Pure: what a new version of a schema may not do to the old ones, in both directions and over all versions.

Avro's own rules (the `avro` package judges), and three of ours: symbols and defaults stay, and no fingerprint
is used twice, since whatever is not in it could change unseen.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from schemas.contract import fingerprint_of


def breaks_between(versions: Sequence[dict[str, Any]]) -> list[str]:
    """Name every break among the versions of one event, oldest first."""
    found = [
        message
        for reader, writer in permutations(versions, 2)
        for message in _incompatibilities(reader, writer)
    ]
    for old, new in combinations(versions, 2):
        found += _lost_symbols(old, new)
        found += _changed_defaults(old, new)
        if fingerprint_of(old) == fingerprint_of(new):
            found.append("two versions have one fingerprint")
    return found


def _incompatibilities(reader: dict[str, Any], writer: dict[str, Any]) -> list[str]:
    result = ReaderWriterCompatibilityChecker().get_compatibility(  # type: ignore[no-untyped-call] # the package is half typed
        avro.schema.parse(json.dumps(reader)), avro.schema.parse(json.dumps(writer))
    )
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    return sorted(result.messages)


def _lost_symbols(old: Any, new: Any) -> list[str]:
    of_new = {enum["name"]: enum["symbols"] for enum in _named(new, "enum")}
    return [
        f"symbols of {enum['name']} were removed or moved"
        for enum in _named(old, "enum")
        if of_new.get(enum["name"], enum["symbols"])[: len(enum["symbols"])] != enum["symbols"]
    ]


def _changed_defaults(old: Any, new: Any) -> list[str]:
    missing = object()
    of_new = {
        (record["name"], field["name"]): field.get("default", missing)
        for record in _named(new, "record")
        for field in record["fields"]
    }
    return [
        f"the default of {record['name']}.{field['name']} was changed"
        for record in _named(old, "record")
        for field in record["fields"]
        if of_new.get((record["name"], field["name"]), field.get("default", missing))
        != field.get("default", missing)
    ]


def _named(schema: Any, kind: str) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for part in schema:
            yield from _named(part, kind)
    if isinstance(schema, dict):
        if schema.get("type") == kind:
            yield schema
        for part in schema.values():
            yield from _named(part, kind)
