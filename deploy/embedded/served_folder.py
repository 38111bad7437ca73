"""Shell: which folder the embedded engine starts from: the release that its gateway wants, or the model.

The gateway writes it; whoever starts the engine reads it. What was written for another model does not count.
"""

import json
from pathlib import Path

from deploy.folders import make_folder, write_whole

FILE_NAME = "serve.json"


def write_served_folder(state_dir: Path, *, model: str, folder: str) -> None:
    """Ask for a folder from the next start on. Raises UnavailableError."""
    path = _path(state_dir)
    make_folder(path.parent, setting="reef.state_dir")
    write_whole(path, json.dumps({"model": model, "folder": folder}).encode())


def read_served_folder(state_dir: Path, *, model: str) -> str:
    """Say what to start from; the model itself when nothing else was asked for, or it is gone."""
    try:
        asked = json.loads(_path(state_dir).read_bytes())
        is_ours = asked["model"] == model and (Path(asked["folder"]) / "config.json").is_file()
    except (OSError, ValueError, KeyError, TypeError):
        return model
    return str(asked["folder"]) if is_ours else model


def _path(state_dir: Path) -> Path:
    return state_dir / "engine" / FILE_NAME
