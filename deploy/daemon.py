"""Shell: one long-running program: started in a session of its own, watched, stopped whole, found again.

Its pid and start time are recorded in a file, so that whoever comes after a kill -9 can end what is left
and can never end a stranger who got the same pid. Not a supervisor: it starts nothing again.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil

from deploy.folders import make_folder, write_whole
from deploy.settings import child_environ
from schemas.errors import UnavailableError

LOG_BYTES_MAX = 64 * 1024 * 1024
"""A log longer than this at a start is set aside, in place of the one before."""

NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
"""No further variables."""

_POLL_S = 0.1
_TERM_S_MAX = 10.0
_KILL_S_MAX = 10.0
_CLOCK_SLACK_S = 1.5  # the kernel counts a start in ticks since a boot whose time is known to a second

_Started = tuple[psutil.Process, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Where a program runs, and how to know that it is ready."""

    name: str
    """One word: names the log, the record and the lines about it."""
    folder: Path
    """Its working folder."""
    log_path: Path
    """Where its standard output and error go."""
    record_path: Path
    """Where its pid and start time are kept."""
    is_ready: Callable[[], bool]
    """A question of a second at most, asked again and again."""
    ready_s_max: float
    """Longer than this to become ready is a failure."""
    stop_s_max: float
    """Longer than this to stop after SIGTERM ends in SIGKILL."""


class Daemon:
    """A program that this process started."""

    def __init__(self, launch: Launch) -> None:
        """Start nothing yet."""
        self.launch = launch
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid while it runs; it is the id of its session, too."""
        return self._process.pid if self._process is not None and self.is_running() else None

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs or before it started."""
        return None if self._process is None else self._process.poll()

    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def clear(self) -> None:
        """Make its folders and end what an earlier start left, so that its ports are free."""
        assert not self.is_running(), f"{self.launch.name} runs already"
        for folder in (self.launch.folder, self.launch.log_path.parent, self.launch.record_path.parent):
            make_folder(folder, setting="reef.state_dir")
        reap(self.launch.record_path)
        _set_long_log_aside(self.launch.log_path)

    def start(self, argv: Sequence[str], *, environ: Mapping[str, str] = NOTHING_MORE) -> None:
        """Start it; `clear` comes first.

        Everybody on the machine can read `argv`; secrets belong into `environ`, which is added to ours.
        Raises UnavailableError.
        """
        assert not self.is_running(), f"{self.launch.name} runs already"
        launch = self.launch
        with launch.log_path.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    argv,
                    env=child_environ(dict(environ)),
                    cwd=launch.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise UnavailableError(
                    f"expected to start {argv[0]} for {launch.name}, got {error.strerror}: run `make setup`",
                    reason="not_startable",
                ) from error
        record(self._process.pid, launch.record_path)

    def is_ready(self) -> bool:
        """Whether it runs and answers."""
        return self.is_running() and self.launch.is_ready()

    def wait_ready(self) -> None:
        """Wait until it answers. Raises UnavailableError when it ends or is too slow."""
        launch = self.launch
        deadline_s = time.monotonic() + launch.ready_s_max
        while not self.is_ready():
            if not self.is_running():
                raise self.ended_error()
            if time.monotonic() >= deadline_s:
                raise self.slow_error()
            time.sleep(_POLL_S)
        self.record_session()

    def record_session(self) -> None:
        """Record its children too, now that they exist: they may outlive it."""
        if self._process is not None:
            record(self._process.pid, self.launch.record_path)

    def ended_error(self) -> UnavailableError:
        """Say how it ended and where to look."""
        return UnavailableError(
            f"expected {self.launch.name} to run, it ended with status {self.exit_code}: "
            f"read {self.launch.log_path}",
            reason="ended",
        )

    def slow_error(self) -> UnavailableError:
        """Say that it does not answer and where to look."""
        return UnavailableError(
            f"expected {self.launch.name} to be ready within {self.launch.ready_s_max:g} s, it is not: "
            f"read {self.launch.log_path}",
            reason="not_ready",
        )

    def stop(self, *, stop_s_max: float | None = None) -> None:
        """End it and every process of its session: first asked, then killed."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            limit_s = self.launch.stop_s_max if stop_s_max is None else stop_s_max
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit_s)
        _kill(_session(process.pid))
        process.wait(_KILL_S_MAX)
        self.launch.record_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it at once, as the kernel would: nothing is asked, the record stays."""
        process = self._process
        assert process is not None, f"{self.launch.name} was never started"
        _kill(_session(process.pid))
        process.wait(_KILL_S_MAX)

    def signal_kill(self) -> None:
        """Kill its processes without waiting: for a signal handler, while `stop` waits."""
        if self._process is not None:
            _send(_session(self._process.pid), signal.SIGKILL)


def record(pid: int, path: Path) -> None:
    """Write down a process and its session: pids and start times. One that just ended is left out."""
    rows = [{"pid": process.pid, "started_s": started_s} for process, started_s in _session(pid)]
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
        left = _session(session)  # the leader is ours, so is whatever it started since
        _send(leaders, signal.SIGTERM)
        _wait_gone(leaders, wait_s=_TERM_S_MAX)
    _kill(left)
    path.unlink(missing_ok=True)
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


def _session(leader: int) -> list[_Started]:
    """Give the living processes of a session, with their start times."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process, process.create_time()))
    return found


def _kill(processes: list[_Started]) -> None:
    _send(processes, signal.SIGKILL)
    _wait_gone(processes, wait_s=_KILL_S_MAX)


def _wait_gone(processes: list[_Started], *, wait_s: float) -> None:
    """Wait for ends; a zombie has ended, though its parent may never ask."""
    deadline_s = time.monotonic() + wait_s
    while any(_is_same(process.pid, started_s) for process, started_s in processes):
        if time.monotonic() >= deadline_s:
            return
        time.sleep(_POLL_S)


def _send(processes: list[_Started], number: signal.Signals) -> None:
    for process, _ in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)  # psutil looks at the start time first: never a stranger


def _set_long_log_aside(path: Path) -> None:
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_name(f"{path.name}.1"))
