"""Shell: the engine's own Python environment, made by uv from the lock of gateway/engine, with our plug-in.

Apart from ours because vLLM and Faust ask for versions of one package that exclude each other.
"""

import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Literal

from deploy.command import run_command
from deploy.folders import held_lock, made_once, write_whole
from schemas.errors import UnavailableError

Device = Literal["cpu", "cuda"]
"""Which build of the engine."""

UV_VERSION = "0.13.9"

_PROJECT = Path(__file__).parents[2] / "gateway" / "engine"
_STAMP = "reef-engine.stamp"
"""Names the plug-in's source that is installed: the environment is kept when only that changes."""
_PLUGIN_S_MAX = 300.0
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


def engine_python(device: Device, cache_dir: Path) -> Path:
    """Where the environment's Python is once made."""
    return engine_environment_path(device, cache_dir) / "bin" / "python"


def prepare_engine_environment(device: Device, cache_dir: Path) -> Path:
    """Make the environment unless it is there, and give its Python. Raises UnavailableError."""

    def make(aside: Path) -> None:
        _install(_lock(device), aside, cache_dir)

    folder = made_once(engine_environment_path(device, cache_dir), make, wait_s=_INSTALL_S_MAX)
    _install_plugin(folder, cache_dir)
    return engine_python(device, cache_dir)


def plugin_digest() -> str:
    """Name the plug-in's source."""
    files = sorted((_PROJECT / "reef_engine").glob("*.py"))
    content = b"".join(
        path.name.encode() + path.read_bytes() for path in (*files, _PROJECT / "pyproject.toml")
    )
    return sha256(content).hexdigest()


def _install_plugin(folder: Path, cache_dir: Path) -> None:
    """Install the plug-in when its source is another one; seconds, and no engine that runs is disturbed."""
    stamp, digest = folder / _STAMP, plugin_digest()
    with held_lock(folder.with_name(f".{folder.name}.plugin.lock"), wait_s=_PLUGIN_S_MAX):
        if stamp.exists() and stamp.read_text() == digest:
            return
        python = str(folder / "bin" / "python")
        options = ("--quiet", "--no-deps", "--no-build-isolation", "--reinstall", "--compile-bytecode")
        run_command(
            (str(find_uv(cache_dir)), "pip", "install", *options, "--python", python, str(_PROJECT)),
            what="installing the engine's plug-in",
            deadline_s=_PLUGIN_S_MAX,
            environ=_uv_environ(cache_dir),
        )
        write_whole(stamp, digest.encode())


def _lock(device: Device) -> Path:
    return _PROJECT / f"requirements-{device}.lock"


def _install(lock: Path, folder: Path, cache_dir: Path) -> None:
    uv = str(find_uv(cache_dir))
    environ = _uv_environ(cache_dir)
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


def _uv_environ(cache_dir: Path) -> dict[str, str]:
    return {"UV_CACHE_DIR": str(cache_dir / "uv"), "UV_LINK_MODE": "hardlink"}
