"""The files of a release, from a folder and from the real lakeFS: the announced content, or nothing."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

import lakefs as lakefs_client
import pytest
from lakefs.client import Client
from pydantic import SecretStr

from deploy.ports import free_port
from schemas.artifact_fetch import LEFT_BEHIND_S, FetchedArtifacts, LakefsAccess
from schemas.artifacts import manifest_of
from schemas.errors import ConflictError, RejectedError, UnavailableError
from schemas.ids import Sha256
from schemas.manifest import MANIFEST_NAME, Manifest
from tests.conftest import LakefsEndpoint

Spoil = Callable[[Path], None]


def an_artifact(folder: Path) -> Path:
    (folder / "tokens").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights" * 1_000)
    (folder / "tokens" / "a b.json").write_bytes(b"{}")
    (folder / MANIFEST_NAME).write_bytes(manifest_of(folder).encode())
    return folder


def content_of(folder: Path) -> Sha256:
    return manifest_of(folder).content_sha256


def test_a_folder_stays_where_it_is(tmp_path: Path) -> None:
    folder = an_artifact(tmp_path / "a b")
    fetched = FetchedArtifacts(tmp_path / "cache", None).fetch(folder.as_uri(), content_of(folder))
    assert fetched == folder


def cut(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weights")


def lose(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def spoil_manifest(folder: Path) -> None:
    (folder / MANIFEST_NAME).write_bytes(b"{")


@pytest.mark.parametrize("spoil", [cut, lose, spoil_manifest])
def test_a_damaged_folder_is_refused(tmp_path: Path, spoil: Spoil) -> None:
    folder = an_artifact(tmp_path / "artifact")
    content = content_of(folder)
    spoil(folder)
    with pytest.raises(RejectedError) as refused:
        FetchedArtifacts(tmp_path / "cache", None).fetch(folder.as_uri(), content)
    assert refused.value.reason == "artifact_unavailable"


def test_a_folder_without_a_manifest_is_all_its_files(tmp_path: Path) -> None:
    folder = an_artifact(tmp_path / "model")
    (folder / MANIFEST_NAME).unlink()
    artifacts = FetchedArtifacts(tmp_path / "cache", None)
    assert artifacts.fetch(folder.as_uri(), content_of(folder)) == folder
    with pytest.raises(RejectedError, match="expected content"):
        artifacts.fetch(folder.as_uri(), Sha256("0" * 64))


@pytest.mark.parametrize("uri", ["s3://bucket/x", "lakefs://repository/commit/", "file:///nowhere/at/all"])
def test_an_address_that_leads_nowhere_is_refused(tmp_path: Path, uri: str) -> None:
    with pytest.raises(RejectedError, match="expected"):
        FetchedArtifacts(tmp_path / "cache", None).fetch(uri, Sha256("0" * 64))


def committed(lakefs: LakefsEndpoint, folder: Path, *, without: str = "") -> tuple[str, str]:
    """Commit an artifact as a release is; give the repository and the commit."""
    keys = {"username": lakefs.access_key_id, "password": lakefs.secret_access_key}
    client = Client(host=lakefs.url, **keys)  # type: ignore[no-untyped-call]
    name = f"fetch-{uuid4().hex[:8]}"
    repository: Any = lakefs_client.repository(name, client=client)
    branch = repository.create(storage_namespace=f"local://{name}").branch("main")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        relative = str(path.relative_to(folder))
        if relative != without:
            place = relative if relative == MANIFEST_NAME else f"artifact/{relative}"
            branch.object(place).upload(path.read_bytes(), mode="wb")
    return name, str(branch.commit(message="a release").id)


def access(lakefs: LakefsEndpoint) -> LakefsAccess:
    secret = SecretStr(lakefs.secret_access_key)
    return LakefsAccess(endpoint=lakefs.url, access_key_id=lakefs.access_key_id, secret_access_key=secret)


@pytest.mark.lakefs
@pytest.mark.slow
def test_a_commit_is_brought_here_once_and_the_oldest_makes_room(
    lakefs: LakefsEndpoint, tmp_path: Path
) -> None:
    artifacts = FetchedArtifacts(tmp_path / "cache", access(lakefs), num_kept=2)
    fetched = []
    for n in range(3):
        folder = an_artifact(tmp_path / str(n))
        (folder / "model.safetensors").write_bytes(bytes([n]) * 100)
        (folder / MANIFEST_NAME).write_bytes(manifest_of(folder).encode())
        repository, commit = committed(lakefs, folder)
        fetched.append(artifacts.fetch(f"lakefs://{repository}/{commit}/", content_of(folder)))
        assert content_of(fetched[-1]) == content_of(folder)
        assert artifacts.fetch(f"lakefs://{repository}/{commit}/", content_of(folder)) == fetched[-1]
    assert [path.exists() for path in fetched] == [False, True, True]


@pytest.mark.lakefs
@pytest.mark.slow
def test_a_commit_that_lacks_a_file_or_is_another_content_is_refused(
    lakefs: LakefsEndpoint, tmp_path: Path
) -> None:
    folder = an_artifact(tmp_path / "artifact")
    artifacts = FetchedArtifacts(tmp_path / "cache", access(lakefs))
    repository, commit = committed(lakefs, folder, without="model.safetensors")
    with pytest.raises(RejectedError, match=r"artifact/model\.safetensors"):
        artifacts.fetch(f"lakefs://{repository}/{commit}/", content_of(folder))
    repository, commit = committed(lakefs, folder)
    with pytest.raises(RejectedError, match="expected content"):
        artifacts.fetch(f"lakefs://{repository}/{commit}/", Sha256("0" * 64))
    with pytest.raises(RejectedError, match="got none"):
        artifacts.fetch(f"lakefs://{repository}/{'0' * 64}/", content_of(folder))


@pytest.mark.lakefs
def test_what_a_manifest_is_refused_for_is_not_brought_here(lakefs: LakefsEndpoint, tmp_path: Path) -> None:
    folder = an_artifact(tmp_path / "artifact")
    repository, commit = committed(lakefs, folder, without="model.safetensors")  # who asks for it, fails

    def check(manifest: Manifest) -> None:
        raise ConflictError(f"expected less, got {manifest.num_bytes} bytes", reason="artifact_too_large")

    artifacts = FetchedArtifacts(tmp_path / "cache", access(lakefs), check=check)
    with pytest.raises(ConflictError, match="got 7002 bytes"):
        artifacts.fetch(f"lakefs://{repository}/{commit}/", content_of(folder))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_lakefs_that_does_not_answer_may_answer_later(tmp_path: Path) -> None:
    nobody = LakefsAccess(
        endpoint=f"http://127.0.0.1:{free_port()}", access_key_id="a", secret_access_key=SecretStr("b")
    )
    with pytest.raises(UnavailableError, match="check lakeFS"):
        FetchedArtifacts(tmp_path, nobody).fetch("lakefs://repository/commit/", Sha256("0" * 64))


NOWHERE = LakefsAccess(endpoint="http://127.0.0.1:1", access_key_id="a", secret_access_key=SecretStr("b"))
"""Nobody listens there: what comes was on this disk."""
URI = "lakefs://repository/commit/"


def test_what_lies_on_this_disk_is_not_fetched_again_even_when_its_origin_is_gone(tmp_path: Path) -> None:
    folder = an_artifact(tmp_path / "export")
    content = content_of(folder)
    FetchedArtifacts(tmp_path / "cache", None).keep(folder, manifest_of(folder))
    shutil.rmtree(folder)
    fetched = FetchedArtifacts(tmp_path / "cache", NOWHERE).fetch(URI, content)
    assert content_of(fetched) == content
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [content]


@pytest.mark.parametrize("spoil", [cut, lose, spoil_manifest])
def test_a_damaged_copy_is_not_given_but_fetched_again(tmp_path: Path, spoil: Spoil) -> None:
    folder = an_artifact(tmp_path / "export")
    artifacts = FetchedArtifacts(tmp_path / "cache", NOWHERE)
    artifacts.keep(folder, manifest_of(folder))
    content = content_of(folder)
    spoil(folder)  # a link to the very file that is kept, but for files that are written anew
    spoil(tmp_path / "cache" / content)
    with pytest.raises(UnavailableError, match="check lakeFS"):
        artifacts.fetch(URI, content)
    artifacts.keep(an_artifact(tmp_path / "again"), manifest_of(tmp_path / "again"))
    assert content_of(artifacts.fetch(URI, content)) == content


def test_the_content_asked_for_last_stays_and_nothing_half_made_for_long(tmp_path: Path) -> None:
    artifacts = FetchedArtifacts(tmp_path / "cache", NOWHERE, num_kept=2)
    folders = []
    left_behind, under_way = tmp_path / "cache/.tmp-old", tmp_path / "cache/.tmp-new"
    for path, age_s in ((left_behind, 2 * LEFT_BEHIND_S), (under_way, 0)):
        path.mkdir(parents=True)
        os.utime(path, (time() - age_s,) * 2)
    for n in range(3):
        folder = an_artifact(tmp_path / str(n))
        (folder / "model.safetensors").write_bytes(bytes([n]) * 100)
        (folder / MANIFEST_NAME).write_bytes(manifest_of(folder).encode())
        artifacts.keep(folder, manifest_of(folder))
        folders.append(tmp_path / "cache" / content_of(folder))
        os.utime(folders[n], (n + 1, n + 1))
        if n == 1:
            assert artifacts.fetch(URI, content_of(tmp_path / "0")) == folders[0]
    assert [path.exists() for path in folders] == [True, False, True]
    assert (left_behind.exists(), under_way.exists()) == (False, True)
