"""Programs start in order and stop in reverse; what ends comes back; what will not stop is killed."""

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from deploy.daemon import Daemon, Launch
from deploy.restarts import EMBEDDED, RestartPolicy
from deploy.stack_state import read_stack_state
from deploy.supervisor import Supervised, Supervisor, end_left_overs
from schemas.errors import ConflictError, UnavailableError

_EVENT_S_MAX = 60.0
_QUICK = RestartPolicy(restarts_max=2, window_s=300.0, delay_s_first=0.01, delay_s_max=0.02)

_STEADY = """
import signal, sys, time
name, diary = sys.argv[1:]
def note(word):
    with open(diary, "a") as file:
        file.write(f"{name} {word}\\n")
def on_term(*_):
    note("stopped")
    raise SystemExit
signal.signal(signal.SIGTERM, on_term)
note("started")
time.sleep(600)
"""
_ENDING = _STEADY.replace(
    "time.sleep(600)", "import os\nwhile not os.path.exists(diary + '.end'):\n    time.sleep(0.02)"
)
_STUBBORN = _STEADY.replace('    note("stopped")\n    raise SystemExit', '    note("asked")')


class Scripted:
    """A program of a few lines of Python that keeps a diary; ready once it wrote that it started."""

    def __init__(self, name: str, script: str, state_dir: Path) -> None:
        self.diary = state_dir / "diary"
        self._argv = (sys.executable, "-c", script, name, str(self.diary))
        self.daemon = Daemon(
            Launch(
                name=name,
                folder=state_dir / name,
                log_path=state_dir / "logs" / f"{name}.log",
                record_path=state_dir / "run" / f"{name}.json",
                is_ready=lambda: f"{name} started" in _read(self.diary),
                ready_s_max=_EVENT_S_MAX,
                stop_s_max=20.0,
                is_gone=(state_dir / f"{name}.gone").exists,
            )
        )

    def start(self) -> None:
        self.daemon.clear()
        self.daemon.start(self._argv)

    def stop(self, *, stop_s_max: float | None = None) -> None:
        self.daemon.stop(stop_s_max=stop_s_max)


def _read(diary: Path) -> list[str]:
    return diary.read_text().splitlines() if diary.exists() else []


def _supervised(name: str, script: str, state_dir: Path, policy: RestartPolicy = EMBEDDED) -> Supervised:
    return Supervised(program=Scripted(name, script, state_dir), policy=policy)


def _run_until(supervisor: Supervisor, holds: Callable[[], bool], *, num_requests: int = 1) -> None:
    """Run the supervisor in this thread; another asks it to stop once something holds."""

    def watch() -> None:
        deadline_s = time.monotonic() + _EVENT_S_MAX
        while not holds() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        for _ in range(num_requests):
            supervisor.request_stop()

    thread = Thread(target=watch)
    thread.start()
    try:
        supervisor.run()
    finally:
        thread.join()


def _phase_is(state_dir: Path, phase: str) -> Callable[[], bool]:
    def holds() -> bool:
        state = read_stack_state(state_dir)
        return state is not None and state.phase == phase

    return holds


def test_stages_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    stages = [[_supervised(name, _STEADY, tmp_path)] for name in ("log", "chain", "service")]
    _run_until(Supervisor(stages, state_dir=tmp_path), _phase_is(tmp_path, "ready"))
    expected = ["log started", "chain started", "service started"]
    assert _read(tmp_path / "diary") == [*expected, "service stopped", "chain stopped", "log stopped"]
    assert _phase_is(tmp_path, "stopped")()
    assert not list((tmp_path / "run").glob("*.json"))


def test_a_program_that_keeps_ending_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    steady = _supervised("steady", _STEADY, tmp_path)
    ending = _supervised("ending", _ENDING, tmp_path, _QUICK)
    was_running = []

    def is_given_up() -> bool:
        if _phase_is(tmp_path, "ready")():
            (tmp_path / "diary.end").touch()
        if ending.state == "failed":
            was_running.append(steady.program.daemon.is_running())
        return ending.state == "failed"

    _run_until(Supervisor([[steady], [ending]], state_dir=tmp_path), is_given_up)
    assert was_running == [True]
    assert _read(tmp_path / "diary").count("ending started") == 3


def test_a_program_that_is_of_no_use_though_it_runs_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.supervisor.GONE_S_MAX", 0.05)
    monkeypatch.setattr("deploy.supervisor._GONE_LOOK_S", 0.01)
    steady = _supervised("steady", _STUBBORN, tmp_path, _QUICK)
    gone = tmp_path / "steady.gone"

    def is_back() -> bool:
        num_starts = _read(tmp_path / "diary").count("steady started")
        if num_starts == 1 and _phase_is(tmp_path, "ready")():
            gone.touch()
        if num_starts == 2:
            gone.unlink(missing_ok=True)
        return num_starts == 2 and steady.state == "ready"

    _run_until(Supervisor([[steady]], state_dir=tmp_path), is_back, num_requests=2)
    assert len(steady.ends_s) == 1


def test_a_program_that_cannot_start_stops_what_was_started(tmp_path: Path) -> None:
    good, bad = _supervised("good", _STEADY, tmp_path), _supervised("bad", "raise SystemExit(4)", tmp_path)
    with pytest.raises(UnavailableError, match=r"bad to run, it ended with status 4: read .*bad\.log"):
        Supervisor([[good], [bad]], state_dir=tmp_path).run()
    assert _read(tmp_path / "diary") == ["good started", "good stopped"]
    state = read_stack_state(tmp_path)
    assert state is not None
    assert state.phase == "failed"
    assert "status 4" in (state.error or "")


def test_a_program_that_never_gets_ready_is_stopped(tmp_path: Path) -> None:
    slow = _supervised("slow", _STEADY.replace('note("started")', ""), tmp_path)
    slow.program.daemon.launch = replace(slow.program.daemon.launch, ready_s_max=0.3)
    with pytest.raises(UnavailableError, match=r"slow to be ready within 0\.3 s"):
        Supervisor([[slow]], state_dir=tmp_path).run()
    assert not slow.program.daemon.is_running()


def test_asked_twice_it_kills_before_its_patience_ends(tmp_path: Path) -> None:
    stubborn = _supervised("stubborn", _STUBBORN, tmp_path)
    is_ready = _phase_is(tmp_path, "ready")
    asked_at_s: list[float] = []

    def is_time_to_ask() -> bool:
        if is_ready():
            asked_at_s.append(time.monotonic())
        return bool(asked_at_s)

    _run_until(Supervisor([[stubborn]], state_dir=tmp_path), is_time_to_ask, num_requests=2)
    assert stubborn.program.daemon.exit_code == -signal.SIGKILL
    assert time.monotonic() - asked_at_s[0] < stubborn.program.daemon.launch.stop_s_max


def test_a_second_supervisor_of_a_folder_is_refused(tmp_path: Path) -> None:
    second = Supervisor([], state_dir=tmp_path)
    refusals: list[ConflictError] = []

    is_running = _phase_is(tmp_path, "ready")

    def is_refused() -> bool:
        if not is_running():
            return False
        try:
            second.run()
        except ConflictError as error:
            refusals.append(error)
        return True

    first = Supervisor([[_supervised("only", _STEADY, tmp_path)]], state_dir=tmp_path)
    _run_until(first, is_refused)
    assert "reef stack down" in str(refusals[0])
    assert _read(tmp_path / "diary") == ["only started", "only stopped"]


def test_what_a_killed_supervisor_left_is_ended_by_the_next(tmp_path: Path) -> None:
    left = Scripted("left", _STEADY, tmp_path)
    left.start()
    left.daemon.wait_ready()
    _run_until(Supervisor([], state_dir=tmp_path), _phase_is(tmp_path, "ready"))
    assert not left.daemon.is_running()
    assert end_left_overs(tmp_path) == 0
