"""`reef explain` against a running gateway: what it tells agrees with what stands in the log."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.bus import KafkaAccess, Reader
from schemas.codec import decode
from schemas.events import OutcomeState
from schemas.ids import BatchId, CandidateId, ExperienceId, Receipt, ReleaseId, ReportId, ScenarioName
from tests.builders import (
    a_batch_sealed,
    a_candidate_evaluated,
    a_candidate_trained,
    a_model_swapped,
    an_experience_assembled,
    an_outcome_settled,
)
from tests.integration.keeping.chains import a_release, publish
from tests.integration.keeping.rig import KeepingRig
from tests.integration.keeping.test_client_commands import Shell

pytestmark = pytest.mark.kafka


def a_reported_call(rig: KeepingRig, scenario: str, report_id: str) -> Receipt:
    headers = {"x-reef-scenario": scenario}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "?"}]}
    asked = httpx.post(f"{rig.url}/v1/chat/completions", headers=headers, json=body, timeout=30)
    receipt = asked.headers["x-reef-agent-record-id"]
    report = {"references": [receipt], "score": 1, "agent_record_id": report_id}
    httpx.post(f"{rig.url}/reef/report", headers=headers, json=report, timeout=30).raise_for_status()
    return Receipt(receipt)


def explained(rig: KeepingRig, scenario: str, name: str, *has: str) -> dict[str, Any]:
    """Ask until what is looked for is told: views lag by a second."""
    ends_s = time.monotonic() + 30
    while True:
        headers = {"x-reef-scenario": scenario}
        answer = httpx.get(f"{rig.url}/reef/explain/{name}", headers=headers, timeout=30).raise_for_status()
        if all(word in answer.text for word in has):
            told: dict[str, Any] = answer.json()
            return told
        assert time.monotonic() < ends_s, answer.text


async def stands_at(access: KafkaAccess, place: dict[str, Any]) -> Any:
    async with Reader(access) as reader:
        offset = place["offset"]
        async for record in reader.read_range(place["topic"], place["partition"], offset, offset):
            return decode(record.value or b"")


async def test_the_life_of_a_call_is_told_from_the_call_to_the_swap_and_back(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    receipt = a_reported_call(rig, scenario, "r-1")
    assert explained(rig, scenario, receipt)["call"]["reports"], "told before the log has it"
    batch, candidate = BatchId(f"batch-{scenario}"), CandidateId(f"candidate-{scenario}")
    experience = ExperienceId(f"experience-{scenario}")
    named: dict[str, Any] = {"scenario": scenario, "batch_id": batch, "candidate_id": candidate}
    release = ReleaseId(f"{scenario}-1")
    now_us = time.time_ns() // 1000
    events: list[Any] = [
        an_experience_assembled(
            scenario=scenario,
            experience_id=experience,
            receipts=(receipt,),
            report_ids=(ReportId("r-1"),),
            assembled_at_us=now_us,
        ),
        a_batch_sealed(scenario=scenario, batch_id=batch, experience_ids=(experience,)),
        a_candidate_trained(**named, batch_seq=0, trained_at_us=now_us),
        a_candidate_evaluated(scenario=scenario, candidate_id=candidate, batch_ids=(batch,)),
        a_release(scenario, 0, batch_ids=()),
        a_release(scenario, 1, candidate_id=candidate, batch_ids=(batch,)),
        a_model_swapped(scenario=scenario, release_id=release, release_seq=1),
        an_outcome_settled(
            receipt=receipt,
            **named,
            state=OutcomeState.TRAINED,
            reason=None,
            experience_id=experience,
            release_id=release,
        ),
    ]
    await asyncio.to_thread(publish, topics, tmp_path, *events)
    has = ('"settled_place":{', '"gateway_id"', '"sealed_at_us"', '"experience_id"', '"verdict":"accepted"')
    told = explained(rig, scenario, receipt, *has)
    (told_release,) = told["releases"]
    places = {
        "report": told["call"]["reports"][0]["place"],
        "experience": told["experience"]["place"],
        "seal": told["batch"]["seal"]["place"],
        "training": told["batch"]["training"]["place"],
        "verdict": told["batch"]["verdict"]["place"],
        "release": told_release["place"],
        "swap": told_release["swaps"][0]["place"],
        "outcome": told["call"]["settled_place"],
    }
    found = {name: await stands_at(topics, place) for name, place in places.items()}
    assert found.pop("report").references == (receipt,)
    assert found == dict(
        zip(
            ("experience", "seal", "training", "verdict", "release", "swap", "outcome"),
            [event for event in events if getattr(event, "release_seq", 1) != 0],
            strict=True,
        )
    )
    reef = Shell(rig.url)
    lines = reef("explain", receipt, "-s", scenario).splitlines()
    names = [line.split()[0] for line in lines[1:-2]]
    assert names == "call report experience batch candidate verdict release swap outcome".split()
    assert lines[-1] == f"trained: it is part of release {release}"
    for name, kind in (
        (batch, "batch"),
        (candidate, "batch"),
        (release, "release"),
        ("1", "release"),
        ("r1", "release"),
    ):
        back = explained(rig, scenario, name)
        assert back["kind"] == kind
        calls = back["calls"] if kind == "batch" else back["batches"][0]["calls"]
        assert [call["agent_record_id"] for call in calls] == [receipt]
    report = json.loads(reef("explain", "r-1", "-s", scenario, "--json"))
    assert (report["kind"], report["calls"][0]["why"]) == ("report", lines[-1])
    assert report["report"]["places"] == [places["report"]]


def test_what_nobody_knows_is_one_line_and_names_what_may_be_asked_for(
    rig: KeepingRig, scenario: ScenarioName
) -> None:
    reef = Shell(rig.url)
    assert reef.status_of("explain", "nothing-of-the-kind", "-s", scenario) == 1
    assert reef.said.startswith("reef: expected a receipt, a report, a batch, a candidate or a release")
    assert reef.status_of("explain", "rec_forged", "-s", scenario) == 1
    assert reef.said.startswith("reef: expected the receipt of a call")
