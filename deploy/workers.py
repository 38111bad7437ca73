"""Shell: several processes of one service: started, started again when they end, stopped together."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

import structlog

from deploy.restarts import OWN_SERVICE, recent, restart_delay_s

_POLL_S = 0.2
_STOP_S_MAX = 30.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class _Child:
    """One process, over its lives."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._ends_s: tuple[float, ...] = ()
        self._start_at_s = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def look(self, now_s: float) -> None:
        """Start the process when its time has come."""
        if self.process is not None and self.process.poll() is not None:
            _log.warning("worker_ended", words=self._words[-2:], status=self.process.returncode)
            self._ends_s = (*recent(OWN_SERVICE, self._ends_s, now_s), now_s)
            self._start_at_s = now_s + (restart_delay_s(OWN_SERVICE, self._ends_s, now_s) or 0.0)
            self.process = None
        if self.process is None and now_s >= self._start_at_s:
            self.process = subprocess.Popen((sys.executable, "-m", "deploy.cli", *self._words))

    def stop(self, deadline_s: float) -> None:
        """Wait for the end that was asked for; after the deadline, force it."""
        if self.process is None:
            return
        try:
            self.process.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_workers(commands: Sequence[Sequence[str]]) -> int:
    """Run `reef` with each of these words until a signal; give the exit status."""
    children = [_Child(words) for words in commands]
    is_stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        is_stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while not is_stopping:
        for child in children:
            child.look(time.monotonic())
        time.sleep(_POLL_S)
    for child in children:
        if child.process is not None:
            child.process.terminate()
    deadline_s = time.monotonic() + _STOP_S_MAX
    for child in children:
        child.stop(deadline_s)
    return 0
