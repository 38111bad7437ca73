"""Shell: trained weights become an artifact: safetensors in bf16 and a manifest, in a folder whole or absent.

Not a release: the release service judges it first. Equal weights give equal bytes: names, order, layout of
files and everything in the manifest depend on the batch alone, never on times or machines; so does the
chance by which they are rounded.

Next: schemas/events/candidates.py
"""

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

import rfc8785
from safetensors.torch import save_file
from torch import Tensor

from schemas.artifacts import manifest_of, read_manifest, verify_folder
from schemas.errors import RejectedError
from schemas.events import ArtifactKind
from schemas.manifest import MANIFEST_NAME, Manifest, manifest_sha256
from trainers.disk import empty_folder_aside, keep_only, publish_folder, unwritable
from trainers.model import Lora
from trainers.ranks import Ranks
from trainers.results import Exported
from trainers.rounding import rounded_by_chance
from trainers.state import Trained
from trainers.step import MEASURED, Learner
from trainers.weights import gathered, named_weights, trainable, weight_files

FOLDERS = "exports"
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_NAME = ".default"
"""What peft puts into the names of an adapter's weights, and leaves out in files."""
ADAPTER_PREFIX = "base_model.model."
INDEX = "model.safetensors.index.json"


class Exports:
    """The artifacts of one scenario's trainer. The newest is kept: those before it have their verdict."""

    def __init__(self, folder: Path, ranks: Ranks, *, model_folder: Path, lora: Lora | None) -> None:
        self._folder = folder / FOLDERS
        self._ranks = ranks
        self._model_folder = model_folder
        self._lora = lora

    @property
    def kind(self) -> ArtifactKind:
        """What is exported."""
        return ArtifactKind.CHECKPOINT if self._lora is None else ArtifactKind.LORA

    def write(self, learner: Learner, result: Trained) -> Exported:
        """Export the learner's weights as the candidate of this result. All ranks call it."""
        files = self._files(learner, seed=result.candidate_id)
        return self._ranks.on_first(lambda: self._write(files, result))

    def _files(self, learner: Learner, *, seed: str) -> Mapping[str, Mapping[str, Tensor]]:
        """By file, by name: the weights, put together on rank 0."""
        keeps = self._ranks.is_first

        def in_bf16(name: str, tensor: Tensor) -> Tensor:
            return rounded_by_chance(tensor, seed=f"{seed}/{name}")

        if self._lora is not None:
            adapter = gathered(trainable(learner.policy.model), keeps=keeps, convert=in_bf16)
            return {ADAPTER_FILE: {file_name_of(name): tensor for name, tensor in adapter.items()}}
        weights = named_weights(learner.policy.model)
        layout = weight_files(self._model_folder)
        return {
            file: gathered({name: weights[name] for name in names}, keeps=keeps, convert=in_bf16)
            for file, names in layout.items()
        }

    def _write(self, files: Mapping[str, Mapping[str, Tensor]], result: Trained) -> Exported:
        path = self._folder / result.candidate_id
        aside = empty_folder_aside(path)
        try:
            for name, weights in files.items():
                save_file(dict(weights), aside / name, metadata={"format": "pt"})
            for name, data in self._descriptions(files).items():
                (aside / name).write_bytes(data)
            manifest = _manifest(aside, self.kind, result)
            (aside / MANIFEST_NAME).write_bytes(manifest.encode())
        except OSError as error:
            raise unwritable(path, error) from error
        if not stands(path, manifest):
            publish_folder(aside, path)
        keep_only(self._folder, {path.name})
        return Exported(
            uri=path.absolute().as_uri(),
            manifest_sha256=manifest_sha256(manifest.encode()),
            content_sha256=manifest.content_sha256,
        )

    def _descriptions(self, files: Mapping[str, Mapping[str, Tensor]]) -> dict[str, bytes]:
        """The small files beside the weights that a loader needs."""
        if self._lora is not None:
            return {ADAPTER_CONFIG: adapter_config(self._lora, adapted_modules(files[ADAPTER_FILE]))}
        index = self._model_folder / INDEX
        return {INDEX: index.read_bytes()} if index.exists() else {}


def _manifest(folder: Path, kind: ArtifactKind, result: Trained) -> Manifest:
    metrics = {name: value for name, value in result.metrics.items() if name not in MEASURED}
    return Manifest(
        kind=kind,
        files=manifest_of(folder, kind).files,
        base_release_id=result.base_release_id,
        base_content_sha256=result.base_content_sha256,
        batch_ids=(result.batch_id,),
        recipe=result.recipe,
        recipe_digest=result.recipe_digest,
        metrics=metrics,
        code_version=version("reef-stream"),
    )


def stands(path: Path, manifest: Manifest) -> bool:
    """Whether this very artifact is in its place; somebody may be reading it, so it is left alone."""
    try:
        found, _ = read_manifest(path)
        verify_folder(path, manifest)
    except RejectedError:
        return False
    return found == manifest


def adapted_modules(weights: Iterable[str]) -> list[str]:
    """The names of the layers that an adapter changes."""
    return sorted({name.partition(".lora_")[0].rpartition(".")[2] for name in weights})


def adapter_config(lora: Lora, target_modules: list[str]) -> bytes:
    """Give the bytes of PEFT's `adapter_config.json`."""
    form = lora.peft_config().to_dict()  # type: ignore[no-untyped-call]
    config = json.loads(json.dumps(form | {"target_modules": target_modules}, default=_plain))
    return rfc8785.dumps({name: value for name, value in config.items() if value is not None})


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set) else str(value)


def file_name_of(name: str) -> str:
    """Name an adapter's weight as PEFT's files do."""
    return ADAPTER_PREFIX + name.replace(ADAPTER_NAME, "")


def network_name_of(name: str) -> str:
    """Name an adapter's weight of a file as our networks do."""
    return name.removeprefix(ADAPTER_PREFIX).removesuffix(".weight") + ADAPTER_NAME + ".weight"
