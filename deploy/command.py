"""Shell: one run of another program to its end, within a deadline, its output kept for when it fails."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.settings import child_environ
from schemas.errors import UnavailableError

_TAIL_LINES = 3
_TAIL_CHARS = 600


def require_program(name: str, *, advice: str) -> str:
    """Find a program on PATH. Raises UnavailableError that ends with the advice."""
    found = shutil.which(name)
    if found is None:
        raise UnavailableError(
            f"expected the program {name} on PATH, found none: {advice}", reason=f"missing_{name}"
        )
    return found


def run_command(
    argv: Sequence[str],
    *,
    what: str,
    deadline_s: float,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Run a program to its end and give its standard output.

    `what` names the work in the message. Raises UnavailableError when it fails or takes too long.
    """
    try:
        done = subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=deadline_s,
            env=child_environ(dict(environ or {})),
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"expected {what} to end within {deadline_s:g} s, got nothing: check the network and try again",
            reason="deadline",
        ) from error
    if done.returncode != 0:
        tail = _tail(done.stderr + done.stdout)
        raise UnavailableError(
            f"expected {what} to succeed, got exit status {done.returncode}: {tail}",
            reason="command_failed",
        )
    return done.stdout


def _tail(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:])[-_TAIL_CHARS:] or "no output"
