"""Pure: what an artifact consists of: a list of files with digests, and where they came from.

Not the reading of folders: schemas/artifacts.py does that. `content_sha256` covers the files alone, so equal
bytes have equal content whatever their parent; the manifest's own digest covers the history too.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import PurePosixPath

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from schemas.errors import RejectedError
from schemas.events import ArtifactKind
from schemas.ids import BatchId, ReleaseId, Sha256

MANIFEST_NAME = "manifest.json"
VERSION = 1
SHA256_PATTERN = r"^[0-9a-f]{64}$"


class ManifestFile(BaseModel):
    """One file of an artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, description="relative to the folder, with forward slashes")
    sha256: Sha256 = Field(pattern=SHA256_PATTERN)
    size: int = Field(ge=0, description="bytes")

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        parts = PurePosixPath(path).parts
        if path.startswith("/") or ".." in parts or path != "/".join(parts) or not path.isprintable():
            raise ValueError("expected a plain path inside the folder")
        if "\\" in path or parts[0][1:2] == ":":
            raise ValueError("expected a path that stays inside on every system, without backslash and drive")
        return path


class Manifest(BaseModel):
    """What a folder holds and why. Readers ignore keys that they do not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    version: int = Field(VERSION, ge=1, le=VERSION)
    kind: ArtifactKind
    files: tuple[ManifestFile, ...]
    base_release_id: ReleaseId | None = Field(None, description="None for a base model")
    base_content_sha256: Sha256 | None = Field(None, pattern=SHA256_PATTERN)
    batch_ids: tuple[BatchId, ...] = ()
    recipe: str = Field("", description="dotted path; empty for a base model")
    recipe_digest: Sha256 | None = Field(None, pattern=SHA256_PATTERN)
    metrics: Mapping[str, float] = Field(
        default_factory=dict, description="deterministic ones only: no times, no rates"
    )
    code_version: str = ""

    @field_validator("files")
    @classmethod
    def _sorted_and_once(cls, files: tuple[ManifestFile, ...]) -> tuple[ManifestFile, ...]:
        paths = [file.path for file in files]
        if len(set(paths)) != len(paths):
            raise ValueError("expected each path once")
        return tuple(sorted(files, key=lambda file: file.path))

    @property
    def content_sha256(self) -> Sha256:
        """The content's name."""
        return content_sha256(self.files)

    @property
    def num_bytes(self) -> int:
        """Of all files together."""
        return sum(file.size for file in self.files)

    def encode(self) -> bytes:
        """Give the bytes of `manifest.json`: canonical JSON (RFC 8785), so that equal manifests are equal."""
        return rfc8785.dumps(self.model_dump(mode="json"))


def decode_manifest(data: bytes) -> Manifest:
    """Read `manifest.json`. Raises RejectedError."""
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise RejectedError(
            f"expected a manifest of version {VERSION}, got {_first_problem(error)}: export it again",
            reason="manifest_mismatch",
        ) from error


def manifest_sha256(data: bytes) -> Sha256:
    """Digest the bytes of `manifest.json`, as CandidateTrained announces them."""
    return Sha256(sha256(data).hexdigest())


def content_sha256(files: Iterable[ManifestFile]) -> Sha256:
    """Name a content: the digest of the canonical JSON of its sorted file list."""
    listed = sorted((file.model_dump() for file in files), key=lambda file: str(file["path"]))
    return Sha256(sha256(rfc8785.dumps(listed)).hexdigest())


def _first_problem(error: ValidationError) -> str:
    first = json.loads(error.json(include_url=False, include_input=False, include_context=False))[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'text'}: {first['msg']}"
