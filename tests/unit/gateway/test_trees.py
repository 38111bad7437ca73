"""What agents pull: which release is meant, how its files stand in an answer, and what is refused."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.scenario_routes import release_rows
from gateway.tree_answers import (
    TREE_BYTES_MAX,
    TREE_FILES_MAX,
    Tree,
    check_size,
    chosen,
    read_asked,
    tree_object,
    versions_object,
)
from gateway.trees import Trees, read_tree
from schemas.artifact_fetch import FetchedArtifacts
from schemas.artifacts import digest_file
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.events import ArtifactKind
from schemas.manifest import MANIFEST_NAME, Manifest, ManifestFile
from tests.builders import SHA256

HARNESS, ROUTING = ArtifactKind.HARNESS, ArtifactKind.ROUTING
KINDS = st.lists(st.sampled_from([HARNESS, ROUTING, ArtifactKind.CHECKPOINT]), max_size=8)


def a_row(seq: int, kind: ArtifactKind = HARNESS, **changes: Any) -> dict[str, Any]:
    return {
        "release_id": f"r{seq}",
        "release_seq": seq,
        "kind": kind.value,
        "operation": "training",
        "parent_release_id": f"r{seq - 1}",
        "rollback_target_release_id": None,
        "candidate_id": f"c{seq}",
        "batch_ids": [f"b{seq}"],
        "content_sha256": SHA256,
        "artifact_uri": f"lakefs://reef-default/r{seq}/",
        "published_at_us": seq,
        **changes,
    }


def a_chain(kinds: list[ArtifactKind]) -> list[dict[str, Any]]:
    """Give rows as the views do, newest first; the base model is the oldest."""
    return [a_row(n, kind) for n, kind in enumerate([ArtifactKind.CHECKPOINT, *kinds])][::-1]


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(ReefError) as refused:
        work()
    return refused.value.reason


@given(KINDS, st.sampled_from([HARNESS, ROUTING]))
def test_the_newest_of_a_kind_is_meant_whatever_stands_around_it(
    kinds: list[ArtifactKind], kind: ArtifactKind
) -> None:
    rows, places = a_chain(kinds), [n for n, one in enumerate(kinds, start=1) if one is kind]
    if not places:
        assert refusal(lambda: chosen(rows, kind, None)) == f"no_such_{kind}"
        assert refusal(lambda: versions_object("s", rows, kind, {})) == f"no_such_{kind}"
        return
    assert chosen(rows, kind, None)["release_seq"] == places[-1]
    listed = versions_object("s", rows, kind, {f"c{places[0]}": {"score": 0.5}})["versions"]
    assert [row["release_seq"] for row in listed] == places
    assert [row["current"] for row in listed] == [seq == places[-1] for seq in places]
    assert listed[0]["metrics"] == {"score": 0.5}
    assert all(chosen(rows, kind, row["artifact_version"])["release_seq"] in places for row in listed)


@pytest.mark.parametrize("asked", ["r9", "r1", "R2", ""])
def test_an_id_that_names_no_release_of_the_kind_is_unknown(asked: str) -> None:
    rows = a_chain([ROUTING, HARNESS])
    assert refusal(lambda: chosen(rows, HARNESS, asked)) == "no_such_harness"
    assert chosen(rows, ROUTING, "r1")["release_seq"] == 1


def test_a_release_may_be_named_as_either_client_has_it() -> None:
    assert read_asked({}).release_id is None
    assert read_asked({"version": "r1"}) == read_asked({"release_id": "r1"})
    assert read_asked({"version": "r1", "release_id": "r1", "encoding": "base64"}).encoding == "base64"


@pytest.mark.parametrize(
    "query",
    [
        {"version": " "},
        {"release_id": "x" * 201},
        {"version": "r1", "release_id": "r2"},
        {"encoding": "latin-1"},
    ],
)
def test_a_query_that_means_nothing_is_refused(query: dict[str, str]) -> None:
    assert refusal(lambda: read_asked(query)) == "bad_field"


def a_tree(**contents: bytes) -> Tree:
    files = tuple(ManifestFile(path=path, sha256=SHA256, size=len(data)) for path, data in contents.items())
    return Tree(manifest=Manifest(kind=HARNESS, files=files), contents=contents)


@given(st.dictionaries(st.text("ab/", min_size=1), st.binary(), max_size=4))
def test_files_come_to_the_byte_or_the_one_that_is_no_text_is_named(contents: dict[str, bytes]) -> None:
    tree = Tree(manifest=Manifest(kind=HARNESS, files=()), contents=contents)
    whole = tree_object("s", a_row(1), tree, "base64")["files"]
    assert {path: base64.b64decode(text) for path, text in whole.items()} == contents
    try:
        texts = {path: data.decode() for path, data in contents.items()}
    except UnicodeDecodeError:
        assert refusal(lambda: tree_object("s", a_row(1), tree, "utf-8")) == "not_text"
        return
    assert tree_object("s", a_row(1), tree, "utf-8")["files"] == texts


def test_an_answer_says_which_release_it_is_and_what_its_files_are() -> None:
    told = tree_object("s", a_row(4), a_tree(agent=b"pass"), "utf-8")
    assert (told["artifact_version"], told["release_id"], told["release_seq"]) == ("r4", "r4", 4)
    assert told["manifest"]["files"] == [{"path": "agent", "sha256": SHA256, "size": 4}]


@pytest.mark.parametrize(
    ("num_files", "size", "fits"),
    [
        (1, TREE_BYTES_MAX, True),
        (1, TREE_BYTES_MAX + 1, False),
        (TREE_FILES_MAX, 0, True),
        (TREE_FILES_MAX + 1, 0, False),
    ],
)
def test_a_tree_has_a_limit(num_files: int, size: int, fits: bool) -> None:
    files = tuple(ManifestFile(path=f"{n:05d}", sha256=SHA256, size=size) for n in range(num_files))
    manifest = Manifest(kind=HARNESS, files=files)
    if fits:
        check_size(manifest)
    else:
        assert refusal(lambda: check_size(manifest)) == "artifact_too_large"


def saved(folder: Path, **contents: bytes) -> Manifest:
    folder.mkdir()
    for path, data in contents.items():
        (folder / path).write_bytes(data)
    manifest = Manifest(kind=HARNESS, files=tuple(digest_file(folder, path) for path in contents))
    (folder / MANIFEST_NAME).write_bytes(manifest.encode())
    return manifest


def test_what_is_read_is_what_the_manifest_names_and_nothing_else(tmp_path: Path) -> None:
    manifest = saved(tmp_path / "tree", agent=b"pass", notes=b"")
    (tmp_path / "tree" / "stray").write_bytes(b"no")
    assert read_tree(tmp_path / "tree", manifest.content_sha256).contents == {"agent": b"pass", "notes": b""}


@pytest.mark.parametrize("change", [b"pasS", b"pass, and more", b"", None])
def test_a_file_that_changed_since_it_was_checked_is_never_served(
    tmp_path: Path, change: bytes | None
) -> None:
    manifest = saved(tmp_path / "tree", agent=b"pass")
    if change is None:
        (tmp_path / "tree" / "agent").unlink()
    else:
        (tmp_path / "tree" / "agent").write_bytes(change)
    with pytest.raises(UnavailableError) as refused:
        read_tree(tmp_path / "tree", manifest.content_sha256)
    assert refused.value.reason == "artifact_moved"


async def test_what_is_no_longer_there_is_a_conflict_of_the_release_not_of_the_request(
    tmp_path: Path,
) -> None:
    trees = Trees(FetchedArtifacts(tmp_path / "trees", None))
    with pytest.raises(ConflictError) as refused:
        await trees.read(a_row(1))
    assert refused.value.reason == "artifact_unavailable"


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../outside"])
def test_a_manifest_that_leads_outside_is_refused_whoever_wrote_it(tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    saved(tmp_path / "tree", agent=b"pass")
    data = (tmp_path / "tree" / MANIFEST_NAME).read_bytes()
    (tmp_path / "tree" / MANIFEST_NAME).write_bytes(data.replace(b'"agent"', f'"{path}"'.encode()))
    with pytest.raises(RejectedError):
        read_tree(tmp_path / "tree", SHA256)


def test_only_weights_are_pending_until_they_serve() -> None:
    rows = [a_row(2), a_row(1, ArtifactKind.CHECKPOINT), a_row(0, ArtifactKind.CHECKPOINT)]
    shown = release_rows(rows, [{}] * 3, serving_seq=0)
    assert [row["pending"] for row in shown] == [False, True, False]
    assert [row["pending"] for row in release_rows(rows, [{}] * 3, serving_seq=None)] == [False, True, True]
