"""Shell: the base model of a scenario as release 0 names it: by path and digests of its files, not copied."""

from dataclasses import dataclass
from pathlib import Path

from schemas.artifacts import manifest_of
from schemas.errors import RejectedError
from schemas.ids import Sha256
from schemas.manifest import Manifest
from schemas.tokenizer import tokenizer_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A model's folder, described."""

    folder: Path
    """Where its files are."""
    manifest: Manifest
    """Its files."""
    tokenizer_digest: Sha256
    """Of its tokenizer."""

    @property
    def uri(self) -> str:
        """Where its files are, as events name it."""
        return self.folder.as_uri() + "/"


def describe_base_model(folder: Path) -> BaseModel:
    """Digest a model's folder. Raises RejectedError when there is none."""
    if not (folder / "config.json").is_file():
        raise RejectedError(
            f"expected the base model's folder with config.json, got {folder}: name it in inference.model",
            reason="configuration",
        )
    return BaseModel(
        folder=folder.absolute(),
        manifest=manifest_of(folder),
        tokenizer_digest=tokenizer_digest(folder),
    )
