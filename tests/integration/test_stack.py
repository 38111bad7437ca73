"""`reef stack` as an operator uses it: up, down, status, and what a kill -9 leaves."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import OpenAI

from deploy.ports import HOST, free_port

pytestmark = [pytest.mark.kafka, pytest.mark.lakefs, pytest.mark.slow]

_COMMAND_S_MAX = 800
_EVENT_S_MAX = 120
_NAMES = ("kafka", "lakefs", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A state folder with ports of its own, and the command line that works on it."""

    folder: Path
    settings: tuple[str, ...]

    def reef(self, *words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (sys.executable, "-m", "deploy.cli", *words, *self.settings),
            cwd=self.folder,
            env=os.environ | ({} if path is None else {"PATH": path}),
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_S_MAX,
        )

    def up(self, *words: str) -> None:
        done = self.reef("stack", "up", *words)
        assert done.returncode == 0, done.stderr

    def status(self) -> dict[str, dict[str, Any]]:
        done = self.reef("stack", "status", "--json")
        assert done.returncode == 0, done.stderr
        status: dict[str, dict[str, Any]] = json.loads(done.stdout)
        return status

    def pid(self, name: str) -> int:
        record: dict[str, int] = json.loads((self.folder / ".reef" / "run" / f"{name}.json").read_bytes())
        return record["session"]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    ports = {name: free_port() for name in ("kafka.port", "lakefs.port", "inference.port")}
    settings = tuple(word for name, port in ports.items() for word in (f"--{name}", str(port)))
    deployment = Deployment(folder=tmp_path, settings=settings)
    yield deployment
    deployment.reef("stack", "down")


def _session(leader: int) -> list[int]:
    """Give the living processes that a program started."""
    return [
        process.pid for process in psutil.process_iter() if _sid(process.pid) == leader and _is_alive(process)
    ]


def _sid(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _EVENT_S_MAX
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.2)


@pytest.mark.engine
def test_up_answers_a_chat_and_down_leaves_no_process(deployment: Deployment) -> None:
    deployment.up()
    status = deployment.status()
    assert all(status[name]["ready"] for name in _NAMES), status
    assert set(status["kafka"]) == {"bootstrap", "pid", "ready"}
    assert set(status["lakefs"]) == {"url", "credentials_file", "pid", "ready"}
    assert set(status["engine"]) == {"url", "model", "pid", "ready"}
    assert (Path(status["lakefs"]["credentials_file"]).stat().st_mode & 0o777) == 0o600
    client = OpenAI(base_url=f"{status['engine']['url']}/v1", api_key="none", timeout=120, max_retries=0)
    answer = client.chat.completions.create(
        model=status["engine"]["model"],
        messages=[
            {"role": "system", "content": "Answer in English."},
            {"role": "user", "content": "What is the capital of France?"},
        ],
        temperature=0,
    )
    assert answer.choices[0].message.content == "The capital of France is Paris."

    leaders = [deployment.pid(name) for name in (*_NAMES, "supervisor")]
    assert all(_session(leader) for leader in leaders)
    deployment.up()  # changes nothing
    assert [deployment.pid(name) for name in (*_NAMES, "supervisor")] == leaders
    assert deployment.reef("stack", "down").returncode == 0
    assert [_session(leader) for leader in leaders] == [[], [], [], []]
    assert not any(part["ready"] or part["pid"] for part in deployment.status().values())


def test_after_a_killed_supervisor_the_next_up_works_and_no_orphan_remains(deployment: Deployment) -> None:
    deployment.up("--without", "engine")
    supervisor, orphans = deployment.pid("supervisor"), [deployment.pid("kafka"), deployment.pid("lakefs")]
    os.kill(supervisor, signal.SIGKILL)
    _until(lambda: not _session(supervisor))
    assert all(_session(orphan) for orphan in orphans)
    assert deployment.status()["kafka"]["pid"] == orphans[0]
    deployment.up("--without", "engine")
    assert [_session(orphan) for orphan in orphans] == [[], []]
    status = deployment.status()
    assert status["kafka"]["ready"]
    assert status["lakefs"]["ready"]
    os.kill(deployment.pid("supervisor"), signal.SIGKILL)
    leaders = [deployment.pid("kafka"), deployment.pid("lakefs")]
    assert deployment.reef("stack", "down").returncode == 0
    assert [_session(leader) for leader in leaders] == [[], []]


def test_a_killed_broker_is_started_again(deployment: Deployment) -> None:
    deployment.up("--without", "engine")
    first, supervisor, other = deployment.pid("kafka"), deployment.pid("supervisor"), deployment.pid("lakefs")
    os.kill(first, signal.SIGKILL)
    _until(lambda: deployment.status()["kafka"]["pid"] not in (None, first))
    _until(lambda: bool(deployment.status()["kafka"]["ready"]))
    assert (deployment.pid("supervisor"), deployment.pid("lakefs")) == (supervisor, other)


def test_an_up_without_the_engine_does_not_pass_for_a_whole_one(deployment: Deployment) -> None:
    deployment.up("--without", "engine", "--without", "lakefs")
    done = deployment.reef("stack", "up")
    assert done.returncode == 1
    assert "runs without engine, lakefs: run `reef stack down` first" in done.stderr


def test_a_taken_port_stops_everything_and_names_the_setting(deployment: Deployment) -> None:
    port = int(deployment.settings[3])
    with socket.create_server((HOST, port)):
        done = deployment.reef("stack", "up", "--without", "engine")
    assert done.returncode == 1
    assert f"expected port {port}" in done.stderr
    assert "lakefs.port" in done.stderr
    assert "Traceback" not in done.stderr
    status = deployment.status()
    assert (status["kafka"]["pid"], status["lakefs"]["pid"]) == (None, None)


def test_a_file_in_place_of_the_state_folder_is_one_line(deployment: Deployment) -> None:
    (deployment.folder / ".reef").write_text("")
    done = deployment.reef("stack", "up", "--without", "engine")
    assert done.returncode == 1
    assert "reef.state_dir" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_machine_without_java_is_told_what_to_install(deployment: Deployment) -> None:
    done = deployment.reef("stack", "up", path=str(Path(sys.executable).parent))
    assert done.returncode == 1
    assert "java" in done.stderr
    assert "apt-get install openjdk-17-jdk-headless" in done.stderr
    doctor = deployment.reef("doctor", "--json", path=str(Path(sys.executable).parent))
    assert doctor.returncode == 1
    outcomes = {verdict["name"]: verdict["outcome"] for verdict in json.loads(doctor.stdout)}
    assert outcomes["JDK"] == "missing"


@pytest.mark.parametrize(
    "words", [("stack", "up", "--without", "kafkaa"), ("stack", "sideways"), ("--nonsense",)]
)
def test_wrong_usage_is_2(deployment: Deployment, words: tuple[str, ...]) -> None:
    assert deployment.reef(*words).returncode == 2


def test_a_wrong_setting_is_2(deployment: Deployment) -> None:
    done = deployment.reef("stack", "up", "--kafka.prt", "1")
    assert done.returncode == 2
    assert "kafka.prt" in done.stderr
    assert "did you mean port?" in done.stderr


def test_down_with_nothing_to_stop_is_fine(deployment: Deployment) -> None:
    done = deployment.reef("stack", "down")
    assert done.returncode == 0
    assert "nothing was running" in done.stderr


def test_a_foreground_stack_stops_in_order_at_an_interrupt(deployment: Deployment) -> None:
    words = ("stack", "up", "--foreground", "--without", "engine")
    process = subprocess.Popen(
        (sys.executable, "-m", "deploy.cli", *words, *deployment.settings),
        cwd=deployment.folder,
        stderr=subprocess.DEVNULL,
    )
    _until(lambda: deployment.status()["kafka"]["ready"] and deployment.status()["lakefs"]["ready"])
    leaders = [deployment.pid("kafka"), deployment.pid("lakefs")]
    process.send_signal(signal.SIGINT)
    assert process.wait(40) == 0
    assert [_session(leader) for leader in leaders] == [[], []]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_up_takes_back_what_it_started(deployment: Deployment, number: signal.Signals) -> None:
    process = subprocess.Popen(
        (sys.executable, "-m", "deploy.cli", "stack", "up", *deployment.settings),
        cwd=deployment.folder,
        stderr=subprocess.DEVNULL,
    )
    _until((deployment.folder / ".reef" / "run" / "kafka.json").exists)
    leaders = [deployment.pid("supervisor"), deployment.pid("kafka")]
    process.send_signal(number)
    assert process.wait(60) != 0
    assert [_session(leader) for leader in leaders] == [[], []]
