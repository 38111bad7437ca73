"""Shell: the facts about this machine that deploy/checks.py judges."""

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path

import psutil

from deploy.checks import Facts, Version, ports_of
from deploy.command import run_command
from deploy.embedded.engine_environment import engine_environment_path, find_device, find_uv
from deploy.embedded.kafka import kafka_jars_path
from deploy.embedded.lakefs import lakefs_binary_path
from deploy.folders import make_folder
from deploy.ports import is_port_free
from deploy.process_record import recorded_pid
from schemas.errors import UnavailableError
from schemas.settings import Settings

_ASK_S_MAX = 30.0
_PROGRAM_OF = {
    "kafka.port": "kafka",
    "lakefs.port": "lakefs",
    "inference.port": "engine",
    "reef.port": "gateway",
}


def look_at_machine(settings: Settings, cache_dir: Path) -> Facts:
    """Gather the facts; nothing is left changed."""
    java = _version_of("java", ("--version",))
    return Facts(
        settings=settings,
        python=sys.version_info[:3],
        uv=_uv(cache_dir),
        java=None if java is None else java_major(java),
        maven=_version_of("mvn", ("-v",)),
        go=_version_of("go", ("version",)),
        has_jars=kafka_jars_path(cache_dir).exists(),
        has_lakefs=lakefs_binary_path(cache_dir).exists(),
        has_engine=engine_environment_path(find_device(), cache_dir).exists(),
        disk_free_bytes=psutil.disk_usage(str(_nearest(cache_dir))).free,
        memory_bytes=psutil.virtual_memory().total,
        ports_of_others=_ports_of_others(settings),
        state_dir_problem=state_dir_problem(settings.reef.state_dir.absolute()),
    )


def _uv(cache_dir: Path) -> str | None:
    try:
        return str(find_uv(cache_dir))
    except UnavailableError:
        return None


def _version_of(name: str, question: tuple[str, ...]) -> Version | None:
    """Ask a program for its version; None when it is not there, () when it does not say."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        said = run_command((path, *question), what=f"{name}'s version", deadline_s=_ASK_S_MAX)
    except UnavailableError:
        return ()
    return version_in(said)


def version_in(said: str) -> Version:
    """Read the first number with a dot, or after a quote, out of what a program says of itself."""
    found = re.search(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", re.sub(r"\x1b\[[0-9;]*m", "", said))
    return tuple(int(part) for part in found.groups() if part) if found else ()


def java_major(version: Version) -> int:
    """Java 8 does not know `--version` and calls itself 1.8."""
    if version[:1] == (1,):
        return version[1] if len(version) > 1 else 0
    return version[0] if version else 0


def _ports_of_others(settings: Settings) -> tuple[int, ...]:
    run_dir = settings.reef.state_dir.absolute() / "run"
    return tuple(
        port
        for setting, port in ports_of(settings).items()
        if not is_port_free(port) and recorded_pid(run_dir / f"{_PROGRAM_OF[setting]}.json") is None
    )


def state_dir_problem(state_dir: Path) -> str | None:
    """Do what a start does first, and take it back: some file systems say yes when asked and then refuse."""
    made = [folder for folder in (state_dir, *state_dir.parents) if not os.path.lexists(folder)]
    try:
        make_folder(state_dir, setting="reef.state_dir")
    except UnavailableError as error:
        return str(error)
    finally:
        for folder in made:
            with contextlib.suppress(OSError):  # never made, or in use by now
                folder.rmdir()
    return None


def _nearest(path: Path) -> Path:
    """Give the path, or the closest folder above it that exists."""
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())
