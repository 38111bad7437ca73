"""Shell: one long-running program: started in a session of its own, watched, and stopped whole.

deploy/process_record.py finds it again after a kill -9. Not a supervisor: it starts nothing again.
"""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from deploy.folders import make_folder
from deploy.process_record import kill, reap, record, send, session_of
from deploy.settings import child_environ
from schemas.errors import UnavailableError

LOG_BYTES_MAX = 64 * 1024 * 1024
"""A log longer than this at a start is set aside, in place of the one before."""

NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
"""No further variables."""

_POLL_S = 0.1
_KILL_S_MAX = 10.0


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
    is_gone: Callable[[], bool] | None = None
    """Whether it is of no use though its process runs; None: a process that runs is of use."""


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
        kill(session_of(process.pid))
        process.wait(_KILL_S_MAX)
        self.launch.record_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it at once, as the kernel would: nothing is asked, the record stays."""
        process = self._process
        assert process is not None, f"{self.launch.name} was never started"
        kill(session_of(process.pid))
        process.wait(_KILL_S_MAX)

    def signal_kill(self) -> None:
        """Kill its processes without waiting: for a signal handler, while `stop` waits."""
        if self._process is not None:
            send(session_of(self._process.pid), signal.SIGKILL)


def _set_long_log_aside(path: Path) -> None:
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_name(f"{path.name}.1"))
