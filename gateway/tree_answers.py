"""Pure: what agents are told of the trees that they pull: a harness or a routing policy, whole or as a list.

Not the reading of files: gateway/trees.py.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from schemas.errors import ConflictError, RejectedError
from schemas.events import ArtifactKind
from schemas.manifest import Manifest

TREE_KINDS = (ArtifactKind.HARNESS, ArtifactKind.ROUTING)
"""Kinds that agents pull; each has a route of its name."""
TREE_BYTES_MAX = 8 * 1024 * 1024
"""Of all files of a tree together: an answer holds them all."""
TREE_FILES_MAX = 4_096
FIELD_CHARS_MAX = 200

Encoding = Literal["utf-8", "base64"]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files of a release."""

    manifest: Manifest
    """Names them."""
    contents: Mapping[str, bytes]
    """By path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request wants of a tree."""

    release_id: str | None
    """Which release; None: the newest of its kind."""
    encoding: Encoding
    """How files stand in the answer."""


def check_size(manifest: Manifest) -> None:
    """Refuse a tree that no answer can hold. Raises ConflictError."""
    if manifest.num_bytes > TREE_BYTES_MAX or len(manifest.files) > TREE_FILES_MAX:
        raise ConflictError(
            f"expected a tree of at most {TREE_BYTES_MAX} bytes in {TREE_FILES_MAX} files, got "
            f"{manifest.num_bytes} bytes in {len(manifest.files)}: publish a smaller one, or read this one "
            "from lakeFS at its artifact_uri",
            reason="artifact_too_large",
        )


def chosen(rows: Sequence[Row], kind: ArtifactKind, release_id: str | None) -> Row:
    """Find the release that is meant among those of a chain, newest first. Raises RejectedError."""
    of_kind = [row for row in rows if row["kind"] == kind]
    if not of_kind:
        raise _none(kind, "none yet: publish one as docs/releases.md says")
    if release_id is None:
        return of_kind[0]
    for row in rows:
        if row["release_id"] == release_id and row["kind"] == kind:
            return row
        if row["release_id"] == release_id:
            raise _none(kind, f"release {row['release_seq']}, which is a {row['kind']}: see {path_of(kind)}")
    raise _none(kind, f"{release_id[:80]!r}: see GET {path_of(kind)}/versions")


def path_of(kind: ArtifactKind) -> str:
    """Name the route of a kind."""
    return f"/reef/{kind.value}"


def tree_object(scenario: str, row: Row, tree: Tree, encoding: Encoding) -> dict[str, Any]:
    """Give a tree whole. Raises ConflictError where a file is no text and text was asked for."""
    files = {path: _encoded(path, data, encoding) for path, data in sorted(tree.contents.items())}
    manifest = tree.manifest.model_dump(mode="json")
    return {"scenario": scenario, **_named(row), "encoding": encoding, "manifest": manifest, "files": files}


def versions_object(
    scenario: str, rows: Sequence[Row], kind: ArtifactKind, measured: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """List the releases of a kind, newest last, with what was measured of each. Raises RejectedError."""
    newest = chosen(rows, kind, None)
    versions = [
        {
            **_named(row),
            "current": row is newest,
            "operation": row["operation"],
            "parent_release_id": row["parent_release_id"],
            "rollback_target_release_id": row["rollback_target_release_id"],
            "candidate_id": row["candidate_id"],
            "batch_ids": row["batch_ids"],
            "metrics": dict(measured.get(row["candidate_id"], {})),
        }
        for row in reversed(rows)
        if row["kind"] == kind
    ]
    return {"scenario": scenario, "kind": kind.value, "versions": versions}


def read_asked(query: Mapping[str, str]) -> Asked:
    """Read what a request asks for: `release_id`, or `version` as reef-client says. Raises RejectedError."""
    named = {name: query[name] for name in ("release_id", "version") if name in query}
    if any(not value.strip() or len(value) > FIELD_CHARS_MAX for value in named.values()):
        raise _bad_query(f"a release id of 1 to {FIELD_CHARS_MAX} characters in {' and '.join(named)}")
    if len(set(named.values())) > 1:
        raise _bad_query("release_id or version, or both with one value")
    encoding = query.get("encoding", "utf-8")
    for known in get_args(Encoding):
        if encoding == known:
            return Asked(release_id=next(iter(named.values()), None), encoding=known)
    raise _bad_query("encoding=utf-8 or encoding=base64")


def _named(row: Row) -> dict[str, Any]:
    return {
        "kind": row["kind"],
        "artifact_version": row["release_id"],
        "release_id": row["release_id"],
        "release_seq": row["release_seq"],
        "content_sha256": row["content_sha256"],
        "content_id": row["content_sha256"],
        "artifact_uri": row["artifact_uri"],
        "published_at_us": row["published_at_us"],
    }


def _encoded(path: str, data: bytes, encoding: Encoding) -> str:
    if encoding == "base64":
        return base64.b64encode(data).decode("ascii")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConflictError(
            f"expected a tree of UTF-8 texts, got {path[:80]!r}, which is none: ask with encoding=base64",
            reason="not_text",
        ) from error


def _none(kind: ArtifactKind, got: str) -> RejectedError:
    return RejectedError(
        f"expected a {kind.value} release of this scenario, got {got}", reason=f"no_such_{kind}"
    )


def _bad_query(expected: str) -> RejectedError:
    return RejectedError(f"expected {expected}, got something else: correct the query", reason="bad_field")
