"""Shell: the engine's own Python environment, made by uv from the lock of gateway/engine.

Apart from ours because vLLM and Faust ask for versions of one package that exclude each other.
"""

import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Literal

from deploy.command import run_command
from deploy.folders import made_once
from schemas.errors import UnavailableError

Device = Literal["cpu", "cuda"]
"""Which build of the engine."""

UV_VERSION = "0.13.9"

_LOCKS = Path(__file__).parents[2] / "gateway" / "engine"
_INSTALL_S_MAX = 3_600.0
_DIGEST_CHARS = 12
_NVIDIA_DEVICE = Path("/dev/nvidia0")


def find_device() -> Device:
    """Choose cuda when this machine has a GPU and its driver."""
    return "cuda" if _NVIDIA_DEVICE.exists() or shutil.which("nvidia-smi") is not None else "cpu"


def find_uv(cache_dir: Path) -> Path:
    """Find uv: the one that set-up installed, else one on PATH. Raises UnavailableError."""
    installed = cache_dir / f"uv-{UV_VERSION}" / "bin" / "uv"
    found = str(installed) if installed.exists() else shutil.which("uv")
    if found is None:
        raise UnavailableError(
            f"expected uv at {installed} or on PATH, found none: run `make setup`", reason="missing_uv"
        )
    return Path(found)


def engine_environment_path(device: Device, cache_dir: Path) -> Path:
    """Where the environment is once made: named after its lock."""
    digest = sha256(_lock(device).read_bytes()).hexdigest()[:_DIGEST_CHARS]
    return cache_dir / f"engine-{device}-{digest}"


def prepare_engine_environment(device: Device, cache_dir: Path) -> Path:
    """Make the environment unless it is there, and give its Python. Raises UnavailableError."""

    def make(aside: Path) -> None:
        _install(_lock(device), aside, cache_dir)

    return (
        made_once(engine_environment_path(device, cache_dir), make, wait_s=_INSTALL_S_MAX) / "bin" / "python"
    )


def _lock(device: Device) -> Path:
    return _LOCKS / f"requirements-{device}.lock"


def _install(lock: Path, folder: Path, cache_dir: Path) -> None:
    uv = str(find_uv(cache_dir))
    environ = {"UV_CACHE_DIR": str(cache_dir / "uv"), "UV_LINK_MODE": "hardlink"}
    run_command(
        (uv, "venv", "--quiet", "--relocatable", "--allow-existing", "--python", sys.executable, str(folder)),
        what="making the engine's environment",
        deadline_s=_INSTALL_S_MAX,
        environ=environ,
    )
    options = (
        "--quiet",
        "--require-hashes",
        "--compile-bytecode",
        "--python",
        str(folder / "bin" / "python"),
    )
    run_command(
        (uv, "pip", "sync", *options, str(lock)),
        what="installing the engine",
        deadline_s=_INSTALL_S_MAX,
        environ=environ,
    )
