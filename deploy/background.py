"""Shell: a supervisor in the background: started, waited for, ended; its log is in the state folder."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from deploy.folders import make_folder
from deploy.origin import Origin, require_same_origin
from deploy.process_record import reap, recorded_pid
from deploy.progress import ProgramBoard, say
from deploy.stack_state import StackState, read_stack_state
from deploy.supervisor import STOP_S_MAX, end_left_overs, supervisor_record
from schemas.errors import ConflictError, UnavailableError

_POLL_S = 0.2
_STARTED_S_MAX = 1_200.0
_END_S_MAX = STOP_S_MAX + 10.0


def join_supervisor(state_dir: Path, names: Sequence[str], *, origin: Origin | None = None) -> bool:
    """Wait until a supervisor that runs already has started these programs; False when none runs.

    Raises ConflictError when it runs others, or was made from another configuration than `origin` where
    that is given, UnavailableError when it fails.
    """
    pid = recorded_pid(supervisor_record(state_dir))
    if pid is None:
        return False
    _require_origin(state_dir, pid, origin)  # before the wait, which may take minutes
    _wait_until_started(state_dir, pid, lambda: recorded_pid(supervisor_record(state_dir)) == pid)
    _require_origin(state_dir, pid, origin)
    state = _word_of(pid, state_dir)
    missing = sorted(set(names) - set(state.programs if state else ()))
    if missing:
        raise ConflictError(
            f"expected a stack with {', '.join(names)}, got one that runs without {', '.join(missing)}: "
            "run `reef stack down` first",
            reason="already_running",
        )
    return True


def require_no_other(state_dir: Path, origin: Origin) -> None:
    """Refuse what runs here from another configuration. Raises ConflictError."""
    pid = recorded_pid(supervisor_record(state_dir))
    if pid is not None:
        _require_origin(state_dir, pid, origin)


def start_supervisor(state_dir: Path, words: Sequence[str]) -> None:
    """Run `reef` with these words in a session of its own, and wait until its programs are ready.

    Raises UnavailableError. An interruption here ends what was started.
    """
    log_path = make_folder(state_dir / "logs", setting="reef.state_dir") / "supervisor.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            (sys.executable, "-m", "deploy.cli", *words),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with _interrupted_by(signal.SIGTERM, signal.SIGHUP):
            _wait_until_started(state_dir, process.pid, lambda: process.poll() is None)
    except KeyboardInterrupt:
        say("interrupted: stopping what was started; once more forces it")
        _stop_interrupted(process)
        raise


@contextlib.contextmanager
def _interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Take these signals as Ctrl-C is taken."""
    before = [(number, signal.signal(number, signal.default_int_handler)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def end_supervisor(state_dir: Path) -> int:
    """End the supervisor in order, and what a killed one left; say how many processes that were."""
    record_path = supervisor_record(state_dir)
    pid = recorded_pid(record_path)
    if pid is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).terminate()
        deadline_s = time.monotonic() + _END_S_MAX
        while recorded_pid(record_path) is not None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
    num_ended = int(pid is not None) + reap(record_path)
    return num_ended + end_left_overs(state_dir)


def _wait_until_started(state_dir: Path, pid: int, is_alive: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _STARTED_S_MAX
    with ProgramBoard() as board:
        while time.monotonic() < deadline_s:
            was_alive = is_alive()  # asked first, so that its last word is read after its end
            state = _word_of(pid, state_dir)
            if state is not None:
                board.show(state.programs)
            if not was_alive:
                raise _ended_error(state, state_dir)
            if state is not None and state.phase == "ready":
                return
            time.sleep(_POLL_S)
    raise UnavailableError(
        f"expected the stack to start within {_STARTED_S_MAX:g} s, it did not: "
        f"read {state_dir / 'logs'}, then run `reef stack down`",
        reason="not_ready",
    )


def _word_of(pid: int, state_dir: Path) -> StackState | None:
    """Read what this supervisor said, not what one before it said."""
    state = read_stack_state(state_dir)
    return state if state is not None and state.supervisor_pid == pid else None


def _require_origin(state_dir: Path, pid: int, origin: Origin | None) -> None:
    state = _word_of(pid, state_dir)
    if state is not None and origin is not None:
        require_same_origin(state.origin, origin, state_dir=state_dir)


def _ended_error(state: StackState | None, state_dir: Path) -> UnavailableError:
    if state is not None and state.error is not None:
        return UnavailableError(state.error, reason="start_failed")
    log_path = state_dir / "logs" / "supervisor.log"
    return UnavailableError(
        f"expected the supervisor to run, it ended: read {log_path}", reason="supervisor_ended"
    )


def _stop_interrupted(process: subprocess.Popen[bytes]) -> None:
    """Stop in order after Ctrl-C; a second Ctrl-C kills."""
    process.terminate()
    try:
        process.wait(_END_S_MAX)
    except KeyboardInterrupt:
        process.terminate()
        process.wait(_END_S_MAX)
