"""Shell: programs of one machine, started in order, started again when they end, stopped in reverse.

Everything about them stands in files of the state folder, so that a supervisor that was killed leaves
nothing that the next one cannot find. Not a cluster's scheduler: one machine, one supervisor.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Protocol

import structlog
from setproctitle import setproctitle

from deploy.daemon import Daemon
from deploy.folders import held_lock, make_folder
from deploy.origin import Origin
from deploy.process_record import reap, record_process
from deploy.restarts import RestartPolicy, recent, restart_delay_s
from deploy.stack_state import Phase, ProgramState, StackState, write_stack_state
from schemas.errors import ConflictError, ReefError, UnavailableError

STOP_S_MAX = 25.0
"""All programs together have this long to stop; what is left then is killed."""

GONE_S_MAX = 5.0
"""A program that is of no use for so long, though its process runs, is ended."""
_GONE_LOOK_S = 1.0
_POLL_S = 0.2
_LOCK_S_MAX = 2.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_log = structlog.get_logger(__name__)


class Program(Protocol):
    """What can be supervised."""

    @property
    def daemon(self) -> Daemon:
        """Its process and how to ask whether it is ready."""

    def start(self) -> None:
        """Start it without waiting. Raises ReefError."""

    def stop(self, *, stop_s_max: float | None = None) -> None:
        """Stop it within its own limit, or the smaller one given."""


@dataclass(kw_only=True)
class Supervised:
    """A program, the patience with it, and what became of it."""

    program: Program
    policy: RestartPolicy
    ends_s: tuple[float, ...] = ()
    restart_at_s: float | None = None
    """When it is to be started again; None while it runs or is given up."""
    state: ProgramState = "waiting"
    started_s: float = 0.0
    """When it was started last."""
    looked_s: float = 0.0
    """When it was last asked whether it is gone."""
    gone_since_s: float | None = None

    @property
    def name(self) -> str:
        """Its word in logs and states."""
        return self.program.daemon.launch.name


class Supervisor:
    """The stages of a stack: all programs of one are ready before the next is started."""

    def __init__(
        self, stages: Sequence[Sequence[Supervised]], *, state_dir: Path, origin: Origin | None = None
    ) -> None:
        """Start nothing yet. `origin` is told to whoever asks what runs here."""
        self._stages = stages
        self._every = [supervised for stage in stages for supervised in stage]
        self._state_dir = state_dir
        self._origin = origin
        self._stopping = Event()
        self._is_forced = False

    def run(self) -> None:
        """Run until a signal comes.

        1. Hold the lock: nobody else supervises this state folder.
        2. End what an earlier supervisor left.
        3. Start stage by stage; one failure here stops everything and is raised.
        4. Watch: what ends is started again as its policy says.
        5. Stop in reverse order.

        Raises:
            ReefError: nothing of ours runs any more.
        """
        setproctitle("reef: supervisor")
        with _sole(self._state_dir), self._signals():
            num_ended = end_left_overs(self._state_dir)
            if num_ended:
                _log.warning("left_overs_ended", num_processes=num_ended)
            try:
                self._write("starting")
                self._start()
                if not self._stopping.is_set():
                    self._write("ready")
                    _log.info("stack_started", programs=[one.name for one in self._every])
                    self._watch()
                self._write("stopping")
            except ReefError as error:
                self._write("failed", error=str(error))
                raise
            finally:
                self._stop()
            self._write("stopped")

    def request_stop(self) -> None:
        """Stop in order; asked again, at once."""
        if self._stopping.is_set():
            self._is_forced = True
            for one in self._every:
                one.program.daemon.signal_kill()
        self._stopping.set()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def on_signal(_number: int, _frame: FrameType | None) -> None:
            self.request_stop()

        before = [(number, signal.signal(number, on_signal)) for number in _STOP_SIGNALS]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def _start(self) -> None:
        for stage in self._stages:
            for one in stage:
                if self._stopping.is_set():
                    return
                self._start_one(one)
                self._write("starting")
            self._wait_ready(stage)

    def _start_one(self, one: Supervised) -> None:
        one.program.start()
        one.state, one.started_s, one.gone_since_s = "starting", time.monotonic(), None

    def _wait_ready(self, stage: Sequence[Supervised]) -> None:
        while waiting := [one for one in stage if one.state == "starting"]:
            for one in waiting:
                if not one.program.daemon.is_running():
                    raise one.program.daemon.ended_error()
                if self._became_ready(one):
                    self._write("starting")
            if self._stopping.wait(_POLL_S):
                return

    def _became_ready(self, one: Supervised) -> bool:
        """Ask a starting program whether it is ready. Raises UnavailableError when it takes too long."""
        daemon, passed_s = one.program.daemon, time.monotonic() - one.started_s
        if not daemon.is_ready():
            if passed_s > daemon.launch.ready_s_max:
                raise daemon.slow_error()
            return False
        daemon.record_session()
        one.state = "ready"
        _log.info("program_ready", program=one.name, pid=daemon.pid, duration_s=round(passed_s, 1))
        return True

    def _watch(self) -> None:
        while not self._stopping.wait(_POLL_S):
            for one in self._every:
                self._attend(one)

    def _attend(self, one: Supervised) -> None:
        daemon = one.program.daemon
        if one.state == "restarting":
            if one.restart_at_s is not None and time.monotonic() >= one.restart_at_s:
                self._restart(one)
        elif one.state in ("starting", "ready") and not daemon.is_running():
            _log.warning("program_ended", program=one.name, status=daemon.exit_code)
            self._after_end(one)
        elif one.state == "starting":
            self._await_restarted(one)
        elif one.state == "ready":
            self._end_if_gone(one)

    def _end_if_gone(self, one: Supervised) -> None:
        """End what hangs while it ends: an engine whose worker died may wait for ever for its answers."""
        launch, now_s = one.program.daemon.launch, time.monotonic()
        if launch.is_gone is None or now_s - one.looked_s < _GONE_LOOK_S:
            return
        one.looked_s = now_s
        if not launch.is_gone():
            one.gone_since_s = None
            return
        one.gone_since_s = now_s if one.gone_since_s is None else one.gone_since_s
        if now_s - one.gone_since_s >= GONE_S_MAX:
            _log.warning("program_gone", program=one.name, log=str(launch.log_path))
            one.program.daemon.kill()
            self._after_end(one)

    def _await_restarted(self, one: Supervised) -> None:
        try:
            became_ready = self._became_ready(one)
        except UnavailableError as error:
            _log.warning("program_hangs", program=one.name, error=str(error))
            one.program.daemon.kill()
            self._after_end(one)
        else:
            if became_ready:
                self._write("ready")

    def _after_end(self, one: Supervised) -> None:
        now_s = time.monotonic()
        one.ends_s = (*recent(one.policy, one.ends_s, now_s), now_s)
        delay_s = restart_delay_s(one.policy, one.ends_s, now_s)
        if delay_s is None:
            one.state, one.restart_at_s = "failed", None
            log_path = str(one.program.daemon.launch.log_path)
            _log.error("program_given_up", program=one.name, num_ends=len(one.ends_s), log=log_path)
        else:
            one.state, one.restart_at_s = "restarting", now_s + delay_s
        self._write("ready")

    def _restart(self, one: Supervised) -> None:
        one.restart_at_s = None
        try:
            self._start_one(one)
        except ReefError as error:
            _log.warning("program_not_started", program=one.name, error=str(error))
            self._after_end(one)
        else:
            _log.info("program_restarted", program=one.name, pid=one.program.daemon.pid)
            self._write("ready")

    def _stop(self) -> None:
        deadline_s = time.monotonic() + STOP_S_MAX
        for one in reversed(self._every):
            left_s = 0.0 if self._is_forced else max(0.0, deadline_s - time.monotonic())
            one.program.stop(stop_s_max=min(left_s, one.program.daemon.launch.stop_s_max))
            _log.info("program_stopped", program=one.name)

    def _write(self, phase: Phase, *, error: str | None = None) -> None:
        programs = {one.name: one.state for one in self._every}
        state = StackState(
            phase=phase, programs=programs, supervisor_pid=os.getpid(), error=error, origin=self._origin
        )
        write_stack_state(self._state_dir, state)


@contextmanager
def _sole(state_dir: Path) -> Iterator[None]:
    """Be the only supervisor of a state folder, and be found by a record. Raises ConflictError."""
    run_dir = make_folder(state_dir / "run", setting="reef.state_dir")
    with ExitStack() as stack:
        try:
            stack.enter_context(held_lock(run_dir / "supervisor.lock", wait_s=_LOCK_S_MAX))
        except UnavailableError as error:
            raise ConflictError(
                f"expected no other supervisor of {state_dir}, got one that runs: see it with "
                "`reef stack status`, end it with `reef stack down`, or set reef.state_dir to another folder",
                reason="already_running",
            ) from error
        record_path = supervisor_record(state_dir)
        record_process(os.getpid(), record_path)
        stack.callback(record_path.unlink, missing_ok=True)
        yield


def supervisor_record(state_dir: Path) -> Path:
    """Where a supervisor's pid and start time are kept."""
    return state_dir / "run" / "supervisor.json"


def end_left_overs(state_dir: Path) -> int:
    """End the programs of a supervisor that is gone; say how many processes those were."""
    records = sorted((state_dir / "run").glob("*.json"))
    return sum(reap(path) for path in records if path != supervisor_record(state_dir))
