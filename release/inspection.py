"""Shell: the facts about a candidate's folder: digests of files, names, shapes and finiteness of tensors.

Only what the manifest names is read. Nothing is judged here (release/gate.py).
"""

from dataclasses import replace
from pathlib import Path

from release.gate import Facts, Shape, TensorFacts
from release.safetensors import TENSORS_SUFFIX, read_shapes, read_tensors
from schemas.artifact_fetch import local_folder
from schemas.artifacts import digest_file
from schemas.errors import RejectedError, UnavailableError, words_of
from schemas.kinds import is_weights
from schemas.manifest import MANIFEST_NAME, Manifest, ManifestFile, decode_manifest, manifest_sha256

NOTHING = Facts(manifest=None, manifest_sha256=None, files={}, tensors={})


def folder_of(uri: str) -> Path:
    """Give the folder that a candidate's address names. Raises RejectedError when it names none."""
    folder = local_folder(uri)
    if folder is None:
        raise RejectedError(
            f"expected a candidate at a file:// address that this machine sees, got {uri}: share the folder",
            reason="missing_file",
        )
    return folder


def inspect(folder: Path) -> Facts:
    """Look at a candidate. Raises UnavailableError when the disk does not answer."""
    try:
        data = (folder / MANIFEST_NAME).read_bytes()
    except FileNotFoundError:
        return NOTHING
    except OSError as error:
        raise UnavailableError(
            f"expected to read {folder}, got {words_of(error)}: check the disk", reason="disk"
        ) from error
    digest = manifest_sha256(data)
    try:
        manifest = decode_manifest(data)
    except RejectedError:
        return replace(NOTHING, manifest_sha256=digest)
    return replace(_inspected(folder, manifest), manifest_sha256=digest, manifest_bytes=data)


def _inspected(folder: Path, manifest: Manifest) -> Facts:
    files = {found.path: found for file in manifest.files for found in _digested(folder, file.path)}
    tensors: dict[str, TensorFacts] = {}
    for file in manifest.files:
        is_whole = files.get(file.path) == file
        if is_whole and is_weights(manifest.kind) and file.path.endswith(TENSORS_SUFFIX):
            tensors |= read_tensors(folder / file.path)
    return replace(NOTHING, manifest=manifest, files=files, tensors=tensors)


def _digested(folder: Path, path: str) -> tuple[ManifestFile, ...]:
    if not (folder / path).is_file():
        return ()
    try:
        return (digest_file(folder, path),)
    except RejectedError:
        return ()


def shapes_of_model(folder: Path) -> dict[str, Shape]:
    """Give names and shapes of a model's weights."""
    return {
        name: shape
        for file in sorted(folder.glob(f"*{TENSORS_SUFFIX}"))
        for name, shape in read_shapes(file).items()
    }
