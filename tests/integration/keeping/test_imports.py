import json
from pathlib import Path
from typing import Any

import pytest
from reef_client import ReefClient
from reef_client.client import ReefClientError
from reef_client.record_import import import_records_file

from schemas.bus import KafkaAccess, Place, Reader
from schemas.codec import BlobsNeededError, decode
from schemas.events import CaptureFault, FeedbackReported, InferenceCompleted
from schemas.ids import ScenarioName, route_of, route_of_import
from schemas.topics import INTERACTIONS, NUM_PARTITIONS_DEFAULT
from tests.integration.keeping.rig import KeepingRig, a_decided_scenario, running_keeping

pytestmark = pytest.mark.kafka


def an_inference(name: str, text: str = "4", **response: Any) -> dict[str, Any]:
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]} | response
    payload = {"messages": [{"role": "user", "content": "2+2?"}], "response": answer}
    return {"agent_record_id": name, "request_type": "inference", "payload": payload}


def a_report(name: str, *references: str, score: float = 1) -> dict[str, Any]:
    payload = {"references": list(references), "score": score}
    return {"agent_record_id": name, "request_type": "report", "payload": payload}


def written(folder: Path, records: list[dict[str, Any]]) -> Path:
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


async def events_in_log(
    access: KafkaAccess, rig: KeepingRig, scenario: str
) -> tuple[list[InferenceCompleted], list[FeedbackReported]]:
    assert rig.run(rig.keeping.outbox.drain(30))
    calls: list[InferenceCompleted] = []
    reports: list[FeedbackReported] = []
    async with Reader(access) as reader:
        bounds = await reader.bounds([Place(INTERACTIONS, n) for n in range(NUM_PARTITIONS_DEFAULT)])
        for place, bound in bounds.items():
            async for record in reader.read_to_end(place.topic, place.partition, bound.start):
                try:
                    event = decode(record.value or b"")
                except BlobsNeededError:
                    continue
                if isinstance(event, InferenceCompleted) and event.scenario == scenario:
                    calls.append(event)
                if isinstance(event, FeedbackReported) and event.scenario == scenario:
                    reports.append(event)
    return calls, reports


async def test_the_importer_of_reef_brings_calls_and_reports_once(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    records: list[dict[str, Any]] = []
    for number in range(25):
        records += [
            an_inference(f"sample-{number}"),
            a_report(f"score-{number}", f"sample-{number}", score=number),
        ]
    source = written(tmp_path, records)
    for attempt in range(2):  # the second as if its progress had been lost
        count = import_records_file(
            source,
            url=rig.url,
            scenario=scenario,
            batch_size=7,
            progress_path=tmp_path / f"progress-{attempt}.json",
        )
        assert count == 50
    calls, reports = await events_in_log(topics, rig, scenario)
    assert sorted(call.imported_id or "" for call in calls) == sorted(f"sample-{n}" for n in range(25))
    receipts = {call.imported_id: call.receipt for call in calls}
    assert {report.report_id: report.references for report in reports} == {
        f"score-{n}": (receipts[f"sample-{n}"],) for n in range(25)
    }
    for call in calls:
        assert route_of(call.receipt) == call.route == route_of_import(scenario, call.imported_id or "")
        assert call.capture_faults == (CaptureFault.NOT_TOKEN_EXACT,)
        assert json.loads(call.request) == {"messages": [{"role": "user", "content": "2+2?"}]}


async def test_an_imported_call_with_ids_and_logprobs_is_exact(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName
) -> None:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "4"},
        "token_ids": [5, 6],
        "logprobs": {"content": [{"token": "4", "logprob": -0.5}, {"token": "", "logprob": -0.25}]},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    record = an_inference("exact", prompt_token_ids=[1, 2, 3], choices=[choice], usage=usage)
    record["payload"]["temperature"] = 1
    answer, _ = ReefClient(rig.url).post("/reef/records", scenario, record)
    (call,), _ = await events_in_log(topics, rig, scenario)
    assert answer == {
        "agent_record_id": "exact",
        "request_type": "inference",
        "scenario": scenario,
        "receipt": call.receipt,
    }
    assert call.capture_faults == ()
    found = ReefClient(rig.url).get("/reef/records/exact", extra_headers={"x-reef-scenario": scenario})
    assert (found["agent_record_id"], found["imported_id"]) == (call.receipt, "exact")


async def test_either_name_of_an_imported_call_can_be_quoted(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName
) -> None:
    client = ReefClient(rig.url)
    answer, _ = client.post("/reef/records", scenario, an_inference("one"))
    for number, reference in enumerate(("one", answer["receipt"])):
        client.report(scenario, {"references": [reference], "score": number, "agent_record_id": f"r{number}"})
    with pytest.raises(ReefClientError) as refused:
        client.report(scenario, {"references": ["one", answer["receipt"]], "score": 1})
    assert refused.value.status == 400
    _, reports = await events_in_log(topics, rig, scenario)
    assert {report.references for report in reports} == {(answer["receipt"],)}


async def test_a_batch_of_records_is_taken_whole_or_not_at_all(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName
) -> None:
    client = ReefClient(rig.url)
    bad = {"records": [an_inference("a"), {**a_report("b", "a"), "request_type": "poem"}]}
    with pytest.raises(ReefClientError) as refused:
        client.post("/reef/records/batch", scenario, bad)
    assert (refused.value.status, "records[1].request_type" in refused.value.body) == (400, True)
    assert await events_in_log(topics, rig, scenario) == ([], [])
    client.post("/reef/records/batch", scenario, {"records": [an_inference("a")]})
    with pytest.raises(ReefClientError) as conflicting:
        client.post("/reef/records/batch", scenario, {"records": [an_inference("n"), an_inference("a", "5")]})
    assert conflicting.value.status == 409
    calls, _ = await events_in_log(topics, rig, scenario)
    assert [call.imported_id for call in calls] == ["a"]


async def test_gateways_share_the_index_of_ids_and_keep_it_over_a_restart(
    topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    decided = a_decided_scenario(scenario)
    report = {"references": [], "score": 1, "agent_record_id": "shared"}
    with running_keeping(topics, tmp_path / "one", scenarios=[decided]) as rig:
        answer, _ = ReefClient(rig.url).post("/reef/records", scenario, an_inference("call"))
        report["references"] = [answer["receipt"]]
        ReefClient(rig.url).report(scenario, report)
    for folder in ("one", "two"):
        with running_keeping(topics, tmp_path / folder, scenarios=[decided]) as rig:
            assert rig.run(rig.keeping.courier.caught_up(20))
            client = ReefClient(rig.url)
            assert client.report(scenario, report)["agent_record_id"] == "shared"
            with pytest.raises(ReefClientError) as refused:
                client.report(scenario, {**report, "score": 0})
            assert refused.value.status == 409
            assert client.post("/reef/records", scenario, an_inference("call"))[0] == answer
            _, reports = await events_in_log(topics, rig, scenario)
            assert len(reports) == 1
