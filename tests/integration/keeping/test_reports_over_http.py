import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reef_client import ReefClient
from reef_client.client import ReefClientError

from schemas.bus import KafkaAccess
from schemas.events import FeedbackReported
from schemas.ids import ScenarioName, Session, mint_receipt, route_of_session
from tests.contract.outbox.opened import reports_in_log
from tests.gateway_rig import RECEIPT_KEY
from tests.integration.keeping.rig import KeepingRig

pytestmark = pytest.mark.kafka
CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}


@pytest.fixture
def client(rig: KeepingRig) -> ReefClient:
    return ReefClient(rig.url)


def a_call(client: ReefClient, scenario: str, session: str | None = None) -> str:
    headers = {} if session is None else {"x-reef-tag-session": session}
    _, receipt = client.inference_with_record(scenario, "/v1/chat/completions", CHAT, extra_headers=headers)
    return str(receipt)


def refusal(client: ReefClient, scenario: str, report: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    with pytest.raises(ReefClientError) as refused:
        client.report(scenario, report)
    return refused.value.status, json.loads(refused.value.body)["error"]


async def in_log(access: KafkaAccess, rig: KeepingRig, scenario: str) -> list[FeedbackReported]:
    assert rig.run(rig.keeping.outbox.drain(30))
    return await reports_in_log(access, scenario)


def until(look: Callable[[], Any], deadline_s: float = 20.0) -> Any:
    ends_s = time.monotonic() + deadline_s
    while not (found := look()):
        assert time.monotonic() < ends_s, "it did not happen"
        time.sleep(0.05)
    return found


async def test_a_report_is_in_the_log_once_however_often_it_is_sent(
    rig: KeepingRig, client: ReefClient, topics: KafkaAccess, scenario: ScenarioName
) -> None:
    receipt = a_call(client, scenario)
    up = {"references": [receipt], "score": 1, "agent_record_id": "f1"}
    expected = {"agent_record_id": "f1", "scenario": scenario, "request_type": "report"}
    assert client.report(scenario, up) == expected
    assert client.report(scenario, {**up, "score": 1.0, "metadata": None}) == expected
    status, error = refusal(client, scenario, {**up, "score": 0})
    assert (status, error["code"]) == (409, "report_conflict")
    (reported,) = await in_log(topics, rig, scenario)
    assert (reported.score, reported.references, reported.num_parts) == (1.0, (receipt,), 1)


async def test_a_correction_supersedes_and_a_withdrawal_takes_back(
    rig: KeepingRig, client: ReefClient, topics: KafkaAccess, scenario: ScenarioName
) -> None:
    receipt = a_call(client, scenario)
    client.report(scenario, {"references": [receipt], "score": 1, "agent_record_id": "f1"})
    client.report(
        scenario, {"references": [receipt], "score": 0, "agent_record_id": "f2", "supersedes": "f1"}
    )
    client.report(scenario, {"agent_record_id": "f3", "supersedes": "f2", "withdraw": True})
    first, second, third = await in_log(topics, rig, scenario)
    assert (first.report_id, second.supersedes, second.score) == ("f1", "f1", 0.0)
    assert (third.is_withdrawal, third.references, third.supersedes) == (True, (receipt,), "f2")


async def test_a_correction_that_speaks_of_other_calls_takes_its_word_back_from_the_old(
    rig: KeepingRig, client: ReefClient, topics: KafkaAccess, scenario: ScenarioName
) -> None:
    one, two, three = (a_call(client, scenario, session) for session in ("a", "b", "c"))
    client.report(scenario, {"references": [one, two], "score": 1, "agent_record_id": "f1"})
    client.report(
        scenario, {"references": [two, three], "score": 0, "agent_record_id": "f2", "supersedes": "f1"}
    )
    parts = [report for report in await in_log(topics, rig, scenario) if report.report_id == "f2"]
    assert {report.references: (report.is_withdrawal, report.score) for report in parts} == {
        (two,): (False, 0.0),
        (three,): (False, 0.0),
        (one,): (True, None),
    }
    assert sorted((report.part, report.num_parts) for report in parts) == [(0, 3), (1, 3), (2, 3)]


def test_forged_and_foreign_receipts_are_refused_alike(client: ReefClient, scenario: ScenarioName) -> None:
    route = route_of_session(ScenarioName("elsewhere"), Session("s"))
    foreign = mint_receipt(ScenarioName("elsewhere"), route, time_ms=1, nonce=b"nonce!", key=RECEIPT_KEY)
    forged = foreign[:-1] + ("0" if foreign[-1] != "0" else "1")
    answers = [
        refusal(client, scenario, {"references": [receipt], "score": 1})
        for receipt in (foreign, forged, "never-issued")
    ]
    assert {(status, error["code"], error["param"]) for status, error in answers} == {
        (400, "unknown_receipt", "references[0]")
    }
    assert answers[0][1]["message"] == answers[1][1]["message"]


async def test_feedback_before_its_call_is_held_in_the_log(
    rig: KeepingRig, client: ReefClient, topics: KafkaAccess, scenario: ScenarioName
) -> None:
    early = mint_receipt(
        scenario, route_of_session(scenario, Session("s")), time_ms=1, nonce=b"nonce!", key=RECEIPT_KEY
    )
    client.report(scenario, {"references": [early], "score": 1})
    (reported,) = await in_log(topics, rig, scenario)
    assert reported.references == (early,)


def test_the_announcements_own_report_trains_and_says_when_it_does_not(
    client: ReefClient, scenario: ScenarioName
) -> None:
    receipt = a_call(client, scenario)
    assert "trains" not in client.report(scenario, {"references": [receipt], "feedback": " Wrong Answer "})
    answer = client.report(scenario, {"references": [receipt], "feedback": "meh"})
    assert answer["trains"] is False
    assert "feedback_scores" in answer["why"]


async def test_a_batch_is_taken_whole_or_not_at_all(
    rig: KeepingRig, client: ReefClient, topics: KafkaAccess, scenario: ScenarioName
) -> None:
    receipt = a_call(client, scenario)
    good = {"references": [receipt], "score": 1}
    status, error = refusal(client, scenario, {"reports": [good, good, good, {**good, "score": True}]})
    assert (status, error["param"]) == (400, "reports[3].score")
    assert "reports[3].score" in error["message"]
    assert await in_log(topics, rig, scenario) == []
    twice = {**good, "agent_record_id": "b1"}
    status, error = refusal(client, scenario, {"reports": [twice, {**twice, "score": 0}]})
    assert status == 409
    answer = client.report(scenario, {"reports": [twice, {**good, "agent_record_id": "b2"}, twice]})
    assert [report["agent_record_id"] for report in answer["reports"]] == ["b1", "b2", "b1"]
    assert sorted(report.report_id for report in await in_log(topics, rig, scenario)) == ["b1", "b2"]


def test_a_call_is_pending_from_the_moment_of_its_answer(
    rig: KeepingRig, client: ReefClient, scenario: ScenarioName
) -> None:
    for number in range(20):
        receipt = a_call(client, scenario, f"session-{number}")
        found = client.get(f"/reef/records/{receipt}")
        assert (found["state"], found["scenario"], found["session"]) == (
            "pending",
            scenario,
            f"session-{number}",
        )
    client.report(scenario, {"references": [receipt], "score": 0.5, "agent_record_id": "seen"})
    found = client.get(f"/reef/records/{receipt}")
    assert [(report["agent_record_id"], report["score"]) for report in found["reports"]] == [("seen", 0.5)]
    assert [span["num_tokens"] > 0 for span in found["served_by"]] == [True]
    assert "body" not in found
    until(lambda: client.get(f"/reef/records/{receipt}")["offset"] is not None)
    body = client.get(f"/reef/records/{receipt}?include=body")["body"]
    assert body["request"]["messages"] == CHAT["messages"]


def test_a_call_whose_blobs_are_gone_is_told_without_its_text(
    rig: KeepingRig, client: ReefClient, scenario: ScenarioName, tmp_path: Path
) -> None:
    large = {"messages": [{"role": "user", "content": "hello " * 60_000}]}
    _, receipt = client.inference_with_record(scenario, "/v1/chat/completions", large)
    told = f"/reef/records/{receipt}?include=body"
    until(lambda: rig.run(rig.keeping.views.call(receipt)))
    assert client.get(told)["body"]["request"]["messages"] == large["messages"]
    blobs = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert blobs
    for path in blobs:
        path.unlink()
    until(lambda: client.get(told)["body"] is None)  # the outbox may have it a moment longer
    assert client.get(told)["state"] == "pending"


def test_unknown_calls_are_not_found(client: ReefClient, scenario: ScenarioName) -> None:
    never = mint_receipt(
        scenario, route_of_session(scenario, Session("s")), time_ms=1, nonce=b"nonce!", key=RECEIPT_KEY
    )
    for name in (never, "nonsense"):
        with pytest.raises(ReefClientError) as refused:
            client.get(f"/reef/records/{name}")
        assert refused.value.status == 404


def test_scenarios_are_listed_made_and_say_what_they_accept(
    rig: KeepingRig, client: ReefClient, scenario: ScenarioName
) -> None:
    assert scenario in {row["scenario"] for row in client.get("/reef/scenarios")["scenarios"]}
    contract = client.get(f"/reef/scenarios/{scenario}/contract")
    assert (contract["processor"], contract["report"]["num_references_min"]) == ("SAORecipe", 1)
    made = _post(rig.url, "/reef/scenarios", {"name": f"{scenario}-b"})
    again = _post(rig.url, "/reef/scenarios", {"name": f"{scenario}-B"})
    assert (made[0], again[0]) == (201, 200)
    assert made[1] == again[1]
    assert client.get(f"/reef/scenarios/{scenario}/releases") == {
        "scenario": scenario,
        "releases": [],
        "held": [],
    }
    status = client.get("/reef/status")
    assert status["problems"] == {} or set(status["problems"]) == {"views"}
    assert scenario in status["scenarios"]


def _post(url: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    request = urllib.request.Request(url + path, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status, json.loads(answer.read())
