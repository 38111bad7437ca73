"""The client commands against a running gateway: what they show, what they ask for, how they fail."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.auth import Grant, Token, digest_of
from schemas.bus import KafkaAccess
from schemas.events import Verdict
from schemas.ids import CandidateId, ScenarioName
from tests.builders import a_candidate_evaluated
from tests.gateway_rig import serving
from tests.integration.keeping.chains import a_release, a_release_service, publish, seen
from tests.integration.keeping.rig import KeepingRig, a_decided_scenario, running_keeping

pytestmark = pytest.mark.kafka


class Shell:
    """Types `reef …` and reads what came."""

    def __init__(self, url: str, token: str = "") -> None:
        self._environ = os.environ | {"REEF_URL": url, "REEF_TOKEN": token}
        self.out, self.said = "", ""

    def __call__(self, *words: str) -> str:
        """Run a command that succeeds; give its output, and keep what it said beside."""
        assert self.status_of(*words) == 0, self.said
        return self.out

    def status_of(self, *words: str) -> int:
        """Run a command; give its exit status."""
        command = (sys.executable, "-m", "deploy.cli", *words)
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=90, env=self._environ
        )
        self.out, self.said = done.stdout, done.stderr
        return done.returncode


@pytest.fixture
def reef(rig: KeepingRig) -> Shell:
    """The command line beside the rig's gateway."""
    return Shell(rig.url)


def test_the_chain_is_shown_rolled_back_and_promoted(
    rig: KeepingRig, reef: Shell, topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    candidate = CandidateId(f"candidate-{scenario}")
    held = a_candidate_evaluated(
        scenario=scenario, candidate_id=candidate, verdict=Verdict.HELD, metrics={"score": 0.75}
    )
    publish(topics, tmp_path, a_release(scenario, 0), a_release(scenario, 1), held)
    seen(rig, scenario, 2)
    lines = reef("releases", scenario).splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["head,", "not", "serving"],
        ["serves", "0", f"{scenario}-0"],
    ]
    assert lines[-1].split() == [candidate, *lines[-1].split()[1:3], "score", "0.75"]
    rows = json.loads(reef("releases", scenario, "--json"))["releases"]
    assert [row["release_seq"] for row in rows] == [1, 0]
    state = rig.keeping.scenarios._catalog.add(scenario)
    state.serving = serving(2)  # as the swap that follows would
    with a_release_service(topics, tmp_path, scenario, refuses=False):
        answer = json.loads(reef("rollback", "0", "-s", scenario, "--expected-head", "1", "--json"))
    assert (answer["release_id"], "release 2 serves" in reef.said) == (f"{scenario}-2", True)
    assert reef.status_of("rollback", "7", "-s", scenario) == 1
    assert "expected one release named '7', got none" in reef.said


def test_a_promotion_completes_the_beginning_of_an_id_and_need_not_wait(
    rig: KeepingRig, reef: Shell, topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    candidate = CandidateId(f"candidate-{scenario}")
    held = a_candidate_evaluated(scenario=scenario, candidate_id=candidate, verdict=Verdict.HELD)
    publish(topics, tmp_path, a_release(scenario, 0), a_release(scenario, 1), held)
    seen(rig, scenario, 2)
    with a_release_service(topics, tmp_path, scenario, refuses=False):
        assert "release 2" in reef("promote", "candidate-", "--no-wait", "-s", scenario)
    with a_release_service(topics, tmp_path, scenario, refuses=True):
        assert reef.status_of("promote", "commit-away", "--no-wait", "-s", scenario) == 1
    assert reef.said == "reef: expected a restorable target\n"


def test_status_and_reports(rig: KeepingRig, reef: Shell, scenario: ScenarioName) -> None:
    found: dict[str, Any] = json.loads(reef("status", "--json"))
    assert found["scenarios"][scenario]["serving"]["release_seq"] == 0
    frame = reef("status")
    assert rig.url in frame
    assert scenario in frame
    asked = httpx.post(
        f"{rig.url}/v1/chat/completions",
        headers={"x-reef-scenario": scenario},
        json={"messages": [{"role": "user", "content": "?"}]},
        timeout=30,
    )
    receipt = asked.headers["x-reef-agent-record-id"]
    said = reef("report", receipt, "--score", "1", "--feedback", "good", "--id", "r-1", "-s", scenario)
    assert said == "report r-1 on 1 call(s) is durable\n"
    assert reef.status_of("report", receipt, "--score", "0", "--id", "r-1", "-s", scenario) == 1
    assert "r-1" in reef.said
    assert reef.status_of("report", "rec_forged", "--score", "1", "-s", scenario) == 1
    assert reef.said.startswith("reef: references[0]: expected")
    assert reef.status_of("report", "rec_forged", "--metadata", "[1]") == 2
    assert reef.status_of("report", receipt, "--score", "nan", "-s", scenario) == 2


def test_a_token_is_taken_from_the_environment_and_two_scenarios_want_a_name(
    topics: KafkaAccess,
    scenario: ScenarioName,
    tmp_path: Path,
) -> None:
    other = ScenarioName(f"{scenario}-b")
    grant = Grant(scopes=frozenset({"read"}), scenarios=frozenset({"*"}))
    tokens = [Token(digest=digest_of(b"a secret for tests"), grant=grant)]
    scenarios = [a_decided_scenario(name) for name in (scenario, other)]
    with running_keeping(topics, tmp_path, scenarios=scenarios, tokens=tokens) as rig:
        assert Shell(rig.url, "another").status_of("releases") == 1
        reef = Shell(rig.url, "a secret for tests")
        assert reef.status_of("releases") == 2
        assert "name one of: " in reef.said
        assert {scenario, other} <= set(reef.said.strip().rpartition(": ")[2].split(", "))
        assert json.loads(reef("releases", other, "--json"))["scenario"] == other
