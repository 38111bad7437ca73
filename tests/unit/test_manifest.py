import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.artifacts import SETTLED_NS, digest_file, manifest_of, read_manifest, verify_folder
from schemas.errors import RejectedError
from schemas.events import ArtifactKind
from schemas.ids import ReleaseId, Sha256
from schemas.manifest import MANIFEST_NAME, Manifest, ManifestFile, content_sha256, decode_manifest

digests = st.text("0123456789abcdef", min_size=64, max_size=64).map(Sha256)
names = st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8})?", fullmatch=True)
file_lists = st.lists(
    st.builds(ManifestFile, path=names, sha256=digests, size=st.integers(0, 2**50)),
    unique_by=lambda file: file.path,
    max_size=6,
).map(tuple)


def a_manifest(files: tuple[ManifestFile, ...] = ()) -> Manifest:
    return Manifest(
        kind=ArtifactKind.CHECKPOINT, files=files, base_release_id=ReleaseId("a1"), metrics={"sao/x": 0.25}
    )


@given(file_lists, st.randoms())
def test_content_is_named_by_its_files_in_any_order_and_by_nothing_else(
    files: tuple[ManifestFile, ...], random: object
) -> None:
    shuffled = tuple(reversed(files))
    assert content_sha256(files) == content_sha256(shuffled) == a_manifest(shuffled).content_sha256
    renamed = a_manifest(files).model_copy(update={"base_release_id": ReleaseId("b2")})
    assert renamed.content_sha256 == content_sha256(files)
    assert renamed.encode() != a_manifest(files).encode()


@given(file_lists)
def test_a_manifest_survives_its_bytes(files: tuple[ManifestFile, ...]) -> None:
    manifest = a_manifest(files)
    assert decode_manifest(manifest.encode()) == manifest
    assert decode_manifest(manifest.encode()).encode() == manifest.encode()


def test_the_content_digest_is_the_one_written_down() -> None:
    file = ManifestFile(path="model.safetensors", sha256=Sha256("0" * 64), size=3)
    by_hand = b'[{"path":"model.safetensors","sha256":"' + b"0" * 64 + b'","size":3}]'
    assert content_sha256((file,)) == sha256(by_hand).hexdigest()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../../x", "", "a//b", "./a", "a\0b", "..\\x", "C:x", "a\nb"]
)
def test_a_path_that_leaves_the_folder_is_refused(path: str) -> None:
    data = a_manifest((ManifestFile(path="x", sha256=Sha256("0" * 64), size=1),)).encode()
    with pytest.raises(RejectedError, match="expected a manifest"):
        decode_manifest(data.replace(b'"path":"x"', b'"path":"' + path.encode() + b'"'))


def test_a_manifest_of_a_later_version_is_refused() -> None:
    with pytest.raises(RejectedError, match="version"):
        decode_manifest(a_manifest().encode().replace(b'"version":1', b'"version":2'))


def cut(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"12")


def lose(folder: Path) -> None:
    (folder / "a.bin").unlink()


def leave_a_stranger(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"stale")


@pytest.mark.parametrize(("damage", "reason"), [(cut, "digest_mismatch"), (lose, "missing_file")])
def test_a_damaged_folder_is_refused(tmp_path: Path, damage: Callable[[Path], None], reason: str) -> None:
    (tmp_path / "a.bin").write_bytes(b"123")
    manifest = manifest_of(tmp_path)
    damage(tmp_path)
    with pytest.raises(RejectedError) as refused:
        verify_folder(tmp_path, manifest)
    assert refused.value.reason == reason


def test_only_what_the_manifest_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"123")
    manifest = manifest_of(tmp_path)
    leave_a_stranger(tmp_path)
    verify_folder(tmp_path, manifest)
    assert [file.path for file in manifest.files] == ["a.bin"]


def test_the_manifest_and_hidden_files_are_not_content(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"123")
    (tmp_path / ".cache").write_bytes(b"x")
    before = manifest_of(tmp_path)
    (tmp_path / MANIFEST_NAME).write_bytes(before.encode())
    assert manifest_of(tmp_path) == before
    assert read_manifest(tmp_path) == (before, before.encode())


def rewrite(path: Path, data: bytes, changed_ns: int) -> None:
    path.write_bytes(data)
    os.utime(path, ns=(changed_ns, changed_ns))


def test_a_file_that_rests_is_digested_once_under_all_its_names(tmp_path: Path) -> None:
    long_ago_ns = time.time_ns() - 100 * SETTLED_NS
    rewrite(tmp_path / "a.bin", b"123", long_ago_ns)
    first = digest_file(tmp_path, "a.bin")
    os.link(tmp_path / "a.bin", tmp_path / "b.bin")
    rewrite(tmp_path / "b.bin", b"456", long_ago_ns)  # which nobody can see
    assert digest_file(tmp_path, "b.bin").sha256 == first.sha256
    rewrite(tmp_path / "b.bin", b"456", long_ago_ns + 1)
    assert digest_file(tmp_path, "a.bin").sha256 == sha256(b"456").hexdigest()


def test_a_file_that_was_written_just_now_is_digested_again(tmp_path: Path) -> None:
    now_ns = time.time_ns() + SETTLED_NS
    rewrite(tmp_path / "a.bin", b"123", now_ns)
    digest_file(tmp_path, "a.bin")
    rewrite(tmp_path / "a.bin", b"456", now_ns)
    assert digest_file(tmp_path, "a.bin").sha256 == sha256(b"456").hexdigest()
