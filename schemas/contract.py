"""Pure: the contract: every version of every event's Avro schema, and the fingerprint it goes by.

The `.avsc` files are this package's constants, read once when first needed, as Python reads its modules.
Not a registry: files are added, never changed; defaults, docs and aliases are no part of a fingerprint.

Next: schemas/forms.py
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, to_parsing_canonical_form
from fastavro.schema import fingerprint as digest_of_form

from schemas.errors import RejectedError

Fingerprint = bytes
"""8 bytes, CRC-64-AVRO of the canonical form, as they stand on the wire (little-endian)."""

_BREAKAGES = (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError)
_FILE = re.compile(r"(?P<event>[A-Z][A-Za-z]+)\.v(?P<version>[1-9][0-9]*)\.avsc")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One released schema of one event type."""

    event: str
    """Name of the event type."""
    version: int
    """Counts from 1."""
    json: str
    """The file's content without its white space."""
    fingerprint: Fingerprint
    """What stands before the bytes that it wrote."""


def parsed(schema_json: str) -> dict[str, Any]:
    """Parse one record schema. Raises RejectedError in one line that says where it breaks."""
    try:
        schema = json.loads(schema_json)
        to_parsing_canonical_form(schema)
    except _BREAKAGES as error:
        detail = " ".join(str(error).split())[:200]
        raise RejectedError(
            f"expected an Avro schema in JSON, got a text that breaks at: {detail}", reason="bad_schema"
        ) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise RejectedError("expected the Avro schema of a record, got another type", reason="bad_schema")
    return schema


def fingerprint_of(schema: dict[str, Any]) -> Fingerprint:
    """Digest a schema (Avro 1.12, schema fingerprints), in the byte order of single-object encoding."""
    return bytes.fromhex(digest_of_form(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


@cache
def schema_versions() -> tuple[SchemaVersion, ...]:
    """Read every released schema, by event and version. Raises RejectedError naming a corrupt file."""
    folder = resources.files("schemas") / "avro"
    versions = [read_version(file) for file in folder.iterdir() if file.name.endswith(".avsc")]
    return tuple(sorted(versions, key=lambda version: (version.event, version.version)))


def read_version(file: Traversable) -> SchemaVersion:
    """Read one `<Event>.v<N>.avsc`. Raises RejectedError naming the file and what to do."""
    match = _FILE.fullmatch(file.name)
    if match is None:
        raise RejectedError(f"expected <Event>.v<N>.avsc, got {file}: rename it", reason="bad_schema")
    try:
        schema = parsed(file.read_text("utf-8"))
    except (RejectedError, UnicodeDecodeError) as error:
        raise RejectedError(
            f"{file}: {error}: restore it with `git checkout -- schemas/avro`, or install again",
            reason="bad_schema",
        ) from error
    return SchemaVersion(
        event=match["event"],
        version=int(match["version"]),
        json=json.dumps(schema, separators=(",", ":"), ensure_ascii=False),
        fingerprint=fingerprint_of(schema),
    )


@cache
def newest_versions() -> Mapping[str, SchemaVersion]:
    """Name the schema in which each event type is written now."""
    return MappingProxyType({version.event: version for version in schema_versions()})
