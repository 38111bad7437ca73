"""Shell: processes of ours written down by pid and start time, so that whoever comes after can end them.

A stranger who got the same pid started at another time, and is never touched.
"""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import psutil

from deploy.folders import write_whole
from schemas.errors import UnavailableError

Started = tuple[psutil.Process, float]
"""A process and when it started, in seconds since 1970."""

_POLL_S = 0.1
_TERM_S_MAX = 10.0
_KILL_S_MAX = 10.0
_CLOCK_SLACK_S = 1.5  # the kernel counts a start in ticks since a boot whose time is known to a second


def record(pid: int, path: Path) -> None:
    """Write down a process and its session: pids and start times. One that just ended is left out."""
    rows = [{"pid": process.pid, "started_s": started_s} for process, started_s in session_of(pid)]
    write_whole(path, json.dumps({"session": pid, "processes": rows}).encode())


def record_process(pid: int, path: Path) -> None:
    """Write down one process without the others of its session, which is somebody's shell."""
    row = {"pid": pid, "started_s": psutil.Process(pid).create_time()}
    write_whole(path, json.dumps({"session": pid, "processes": [row]}).encode())


def recorded_pid(path: Path) -> int | None:
    """Give the pid of a recorded program, if it still is that program."""
    session, rows = _read_record(path)
    return next((pid for pid, started_s in rows if pid == session and _is_same(pid, started_s)), None)


def reap(path: Path) -> int:
    """End what is left of a recorded program, and nobody else; say how many processes that were.

    Its first process is asked to end, so that it can close its files; after ten seconds all are killed.
    """
    session, rows = _read_record(path)
    left = [(psutil.Process(pid), started_s) for pid, started_s in rows if _is_same(pid, started_s)]
    leaders = [row for row in left if row[0].pid == session]
    if leaders:
        left = session_of(session)  # the leader is ours, so is whatever it started since
        send(leaders, signal.SIGTERM)
        _wait_gone(leaders, wait_s=_TERM_S_MAX)
    kill(left)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
    return len(left)


def _read_record(path: Path) -> tuple[int, list[tuple[int, float]]]:
    try:
        content = json.loads(path.read_bytes())
        rows = [(int(row["pid"]), float(row["started_s"])) for row in content["processes"]]
        return int(content["session"]), rows
    except (FileNotFoundError, NotADirectoryError):
        return 0, []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnavailableError(
            f"expected a record of processes at {path}, got something else: "
            "end what runs by hand and remove the file",
            reason="bad_record",
        ) from error


def _is_same(pid: int, started_s: float) -> bool:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(process.create_time() - started_s) <= _CLOCK_SLACK_S
    except psutil.NoSuchProcess:
        return False


def session_of(leader: int) -> list[Started]:
    """Give the living processes of a session, with their start times."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process, process.create_time()))
    return found


def kill(processes: list[Started]) -> None:
    """Kill these processes and wait until they are gone."""
    send(processes, signal.SIGKILL)
    _wait_gone(processes, wait_s=_KILL_S_MAX)


def _wait_gone(processes: list[Started], *, wait_s: float) -> None:
    """Wait for ends; a zombie has ended, though its parent may never ask."""
    deadline_s = time.monotonic() + wait_s
    while any(_is_same(process.pid, started_s) for process, started_s in processes):
        if time.monotonic() >= deadline_s:
            return
        time.sleep(_POLL_S)


def send(processes: list[Started], number: signal.Signals) -> None:
    """Send a signal to those that are still there."""
    for process, _ in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)  # psutil looks at the start time first: never a stranger
