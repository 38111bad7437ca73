"""Shell: what a supervisor last said about its programs, in a file that others read whole."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from deploy.folders import write_whole
from deploy.origin import Origin

Phase = Literal["starting", "ready", "stopping", "stopped", "failed"]
"""Where the stack as a whole is; `ready` was reached once and may hold programs that restart."""
ProgramState = Literal["waiting", "starting", "ready", "restarting", "failed"]
"""Where one program is; `failed` is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """One look at a stack."""

    phase: Phase
    """Of the whole."""
    programs: Mapping[str, ProgramState]
    """By name, in starting order."""
    supervisor_pid: int
    """Who says so; says nothing about whether it still runs."""
    error: str | None = None
    """Why it failed."""
    origin: Origin | None = None
    """The configuration that it runs; None when it does not say, as supervisors of older versions."""


def write_stack_state(state_dir: Path, state: StackState) -> None:
    """Replace what was said before."""
    write_whole(_path(state_dir), json.dumps(asdict(state)).encode())


def read_stack_state(state_dir: Path) -> StackState | None:
    """Read the last word; None when there is none that can be read."""
    try:
        said = json.loads(_path(state_dir).read_bytes())
        origin = said.pop("origin", None)
        return StackState(**said, origin=None if origin is None else Origin(**origin))
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _path(state_dir: Path) -> Path:
    return state_dir / "run" / "stack.state"
