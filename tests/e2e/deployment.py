"""Shell: a whole deployment as a user starts it, with ports and a folder of its own, on the tiny model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from deploy.ports import free_port
from deploy.process_record import session_of

CONFIG = Path(__file__).with_name("life.yaml")
COMMAND_S_MAX = 800
EVENT_S_MAX = 240
SCENARIO = "life"
HEADERS = {"x-reef-scenario": SCENARIO}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """`reef serve` in the background."""

    state_dir: Path
    words: tuple[str, ...]
    http: httpx.Client

    def reef(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (sys.executable, "-m", "deploy.cli", *words, "-c", str(CONFIG), *self.words),
            cwd=self.state_dir.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S_MAX,
        )

    def kill(self, name: str) -> None:
        """Kill a program with everything that it started."""
        record = json.loads((self.state_dir / "run" / f"{name}.json").read_bytes())
        os.killpg(record["session"], signal.SIGKILL)

    def process(self, name: str, title: str) -> int:
        """Find a process of a program by what its title contains."""
        record = json.loads((self.state_dir / "run" / f"{name}.json").read_bytes())
        titles = ((process.pid, " ".join(process.cmdline())) for process, _ in session_of(record["session"]))
        return next(pid for pid, found in titles if title in found)

    def ask(self) -> tuple[str, str]:
        """Ask a question; give the receipt and the release that answered."""
        body = {
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 8,
            "temperature": 1.0,
        }
        answer = self.http.post("/v1/chat/completions", json=body)
        answer.raise_for_status()
        return answer.headers["x-reef-agent-record-id"], answer.headers["x-reef-release-id"]

    def report(self, receipt: str, score: float) -> None:
        body = {"references": [receipt], "score": score, "agent_record_id": f"report-{receipt}"}
        self.http.post("/reef/report", json=body).raise_for_status()

    def record(self, receipt: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/reef/records/{receipt}").raise_for_status().json()
        return found

    def releases(self) -> list[dict[str, Any]]:
        """Give the chain, newest first."""
        found = self.http.get(f"/reef/scenarios/{SCENARIO}/releases").raise_for_status().json()
        return list(found["releases"])

    def wanted(self) -> str:
        """Say which release the engines are to serve."""
        status = self.http.get("/reef/status").raise_for_status().json()
        return str(status["scenarios"][SCENARIO]["wanted_release_id"])

    def answers_with_head(self) -> bool:
        """Whether a call is answered by what the chain says last; refused ones are tried again."""
        try:
            return self.ask()[1] == str(self.releases()[0]["release_id"])
        except httpx.HTTPError:
            return False


@contextmanager
def served(folder: Path, further: Mapping[str, int] = MappingProxyType({})) -> Iterator[Deployment]:
    """Start everything, with further settings; stop it, and require that the stop is clean."""
    ports = {
        name: free_port()
        for name in ("kafka.port", "lakefs.port", "inference.port", "reef.port", "observability.metrics_port")
    }
    numbers = ports | dict(further)
    words = tuple(word for name, number in numbers.items() for word in (f"--{name}", str(number)))
    url = f"http://127.0.0.1:{ports['reef.port']}"
    with httpx.Client(base_url=url, headers=HEADERS, timeout=120) as http:
        deployment = Deployment(state_dir=folder / ".reef", words=words, http=http)
        done = deployment.reef("serve", "--background")
        try:
            assert done.returncode == 0, done.stderr
            yield deployment
        finally:
            done = deployment.reef("stack", "down")
        assert done.returncode == 0, done.stderr


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for what another process does."""
    deadline_s = time.monotonic() + EVENT_S_MAX
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.2)
