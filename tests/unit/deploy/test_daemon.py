"""A program is stopped whole, found again by pid and start time, and a stranger is never touched."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.daemon import Daemon, Launch
from deploy.process_record import reap, record, record_process, recorded_pid
from schemas.errors import UnavailableError

_PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(1, flush=True)
time.sleep(600)
"""


def _launch(folder: Path, *, stop_s_max: float = 5.0) -> Launch:
    log_path = folder / "logs" / "sample.log"
    return Launch(
        name="sample",
        folder=folder / "sample",
        log_path=log_path,
        record_path=folder / "run" / "sample.json",
        is_ready=lambda: log_path.exists() and log_path.stat().st_size > 0,
        ready_s_max=30.0,
        stop_s_max=stop_s_max,
    )


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(_launch(tmp_path))
    yield daemon
    daemon.stop(stop_s_max=0)


def _started(daemon: Daemon, program: str) -> int:
    daemon.clear()
    daemon.start((sys.executable, "-c", program))
    daemon.wait_ready()
    return int(daemon.launch.log_path.read_text())


def _is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_stop_ends_the_children_too_and_leaves_no_record(daemon: Daemon) -> None:
    child = _started(daemon, _PARENT)
    assert _is_alive(child)
    daemon.stop()
    assert not _is_alive(child)
    assert not daemon.is_running()
    assert not daemon.launch.record_path.exists()


def test_a_program_that_will_not_stop_is_killed(daemon: Daemon) -> None:
    _started(daemon, _STUBBORN)
    daemon.stop(stop_s_max=0.2)
    assert daemon.exit_code == -signal.SIGKILL


def test_what_a_killed_starter_left_is_ended_with_its_children(daemon: Daemon) -> None:
    child = _started(daemon, _PARENT)
    leader = daemon.pid
    assert recorded_pid(daemon.launch.record_path) == leader
    assert reap(daemon.launch.record_path) == 2
    assert not _is_alive(child)
    assert daemon.exit_code == -signal.SIGTERM
    assert recorded_pid(daemon.launch.record_path) is None


def test_children_are_ended_when_their_parent_is_gone_already(daemon: Daemon) -> None:
    child = _started(daemon, _PARENT)
    leader = daemon.pid
    assert leader is not None
    os.kill(leader, signal.SIGKILL)
    os.waitid(os.P_PID, leader, os.WEXITED | os.WNOWAIT)
    assert reap(daemon.launch.record_path) == 1
    assert not _is_alive(child)


def test_a_stranger_with_a_recorded_pid_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(
        (sys.executable, "-c", "import time; time.sleep(600)"), start_new_session=True
    )
    path = tmp_path / "record.json"
    try:
        record(stranger.pid, path)
        content = json.loads(path.read_bytes())
        content["processes"][0]["started_s"] -= 100.0
        path.write_text(json.dumps(content))
        assert recorded_pid(path) is None
        assert reap(path) == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_recorded_alone_is_found(tmp_path: Path) -> None:
    record_process(os.getpid(), tmp_path / "self.json")
    assert recorded_pid(tmp_path / "self.json") == os.getpid()


def test_nothing_recorded_is_nothing_to_end(tmp_path: Path) -> None:
    assert reap(tmp_path / "none.json") == 0
    (tmp_path / "file").touch()
    assert reap(tmp_path / "file" / "run" / "none.json") == 0
    assert recorded_pid(tmp_path / "none.json") is None


def test_a_spoilt_record_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "spoilt.json"
    path.write_text("{")
    with pytest.raises(UnavailableError, match=r"spoilt\.json"):
        reap(path)


def test_a_program_that_ends_at_once_is_reported_with_its_log(daemon: Daemon) -> None:
    daemon.clear()
    daemon.start((sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(UnavailableError, match=r"status 3: read .*sample\.log"):
        daemon.wait_ready()


def test_a_program_that_is_not_there_is_reported(daemon: Daemon) -> None:
    daemon.clear()
    with pytest.raises(UnavailableError, match="make setup"):
        daemon.start(("/nowhere/program",))


def test_a_state_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    daemon = Daemon(_launch(tmp_path / "state"))
    with pytest.raises(UnavailableError, match=r"reef\.state_dir"):
        daemon.clear()
