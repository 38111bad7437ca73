"""Pure: a replay's manifest: all that its outputs depend on, so that it can be given again.

Written before any output. Given again, the same code gives the same bytes, and another code says so. Only an
erasure that came since changes them: it holds for every replay from then on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.canonical import canonical_sha256
from schemas.errors import RejectedError
from schemas.ids import Sha256
from schemas.records import Bounds, Place
from schemas.topics import EXPERIENCE, INTERACTIONS
from streams.replay.change import Change

VERSION = 1
Ranges = Mapping[Place, Bounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a replay reads and how."""

    ranges: Ranges
    """Of each input partition: from `start` to before `end`."""
    schemas: Mapping[str, str]
    """Fingerprint in hex by event type: what is written in."""
    change: Change
    """What is otherwise than in the log."""
    recipes: Mapping[str, str]
    """Digest of recipe and options by scenario, as last configured within the range."""
    code: str
    """Version of the program, and a digest of the folds' sources."""
    writer: str
    """Who writes Parquet: another version may lay the same rows out in other bytes."""

    def as_json(self) -> dict[str, Any]:
        """Give the file's content."""
        return {
            "version": VERSION,
            "code": self.code,
            "writer": self.writer,
            "topics": {topic: _ranges_of(topic, self) for topic in (INTERACTIONS, EXPERIENCE)},
            "schemas": dict(self.schemas),
            "recipe": self.change.recipe,
            "set": dict(self.change.options),
            "recipe_digests": dict(self.recipes),
        }

    def text(self) -> str:
        """Write the file."""
        return json.dumps(self.as_json(), indent=2, sort_keys=True) + "\n"

    def digest(self) -> Sha256:
        """Digest the content, however the file is laid out."""
        return canonical_sha256(self.as_json())


def _ranges_of(topic: str, manifest: Manifest) -> list[dict[str, int]]:
    places = sorted(place for place in manifest.ranges if place.topic == topic)
    return [
        {
            "partition": place.partition,
            "from": manifest.ranges[place].start,
            "to": manifest.ranges[place].end,
        }
        for place in places
    ]


def read_manifest(text: str) -> Manifest:
    """Read a manifest's file. Raises RejectedError."""
    try:
        body = json.loads(text)
        if body["version"] != VERSION:
            raise RejectedError(
                f"expected a manifest of version {VERSION}, got {body['version']}: replay with the program "
                f"that wrote it: {body.get('code')}",
                reason="bad_manifest",
            )
        rows = [(topic, row) for topic, found in body["topics"].items() for row in found]
        return Manifest(
            ranges={
                _place(topic, row): Bounds(start=int(row["from"]), end=int(row["to"])) for topic, row in rows
            },
            schemas=dict(body["schemas"]),
            change=Change(recipe=body["recipe"], options=dict(body["set"])),
            recipes=dict(body["recipe_digests"]),
            code=str(body["code"]),
            writer=str(body["writer"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RejectedError(
            f"expected the manifest of a replay, got another file: {error!r}: give the manifest.json that a "
            "replay wrote",
            reason="bad_manifest",
        ) from error


def _place(topic: str, row: Mapping[str, Any]) -> Place:
    if topic not in (INTERACTIONS, EXPERIENCE):
        raise ValueError(f"no input of a replay: {topic}")
    return Place(topic, int(row["partition"]))


def differences(given: Manifest, now: Manifest) -> tuple[str, ...]:
    """Say in what the program differs from the one that wrote a manifest."""
    return tuple(
        [
            f"{name}: the manifest has {before}, this program {after}"
            for name, before, after in (
                ("code", given.code, now.code),
                ("writer", given.writer, now.writer),
                ("schemas", canonical_sha256(dict(given.schemas)), canonical_sha256(dict(now.schemas))),
                ("recipes", canonical_sha256(dict(given.recipes)), canonical_sha256(dict(now.recipes))),
            )
            if before != after
        ]
    )
