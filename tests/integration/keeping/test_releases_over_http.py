import time
from pathlib import Path
from typing import Any

import pytest
from reef_client import ReefClient
from reef_client.client import ReefClientError

from schemas.bus import KafkaAccess
from schemas.events import OutcomeState, Verdict
from schemas.ids import BatchId, CandidateId, ScenarioName
from tests.builders import a_candidate_evaluated, an_outcome_settled
from tests.integration.keeping.chains import a_release, a_release_service, publish, seen
from tests.integration.keeping.rig import KeepingRig, a_decided_scenario, running_keeping

pytestmark = pytest.mark.kafka


def test_releases_are_shown_newest_first_with_their_batches_and_calls(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    batch, candidate = BatchId(f"batch-{scenario}"), CandidateId(f"candidate-{scenario}")
    publish(
        topics,
        tmp_path,
        a_release(scenario, 0),
        a_release(scenario, 1, candidate_id=candidate, batch_ids=(batch,)),
        a_candidate_evaluated(scenario=scenario, candidate_id=candidate, metrics={"loss": 0.5}),
        an_outcome_settled(
            scenario=scenario, state=OutcomeState.TRAINED, reason=None, batch_id=batch, notes=("late",)
        ),
    )
    seen(rig, scenario, 2)
    client = ReefClient(rig.url)
    rows = client.get(f"/reef/scenarios/{scenario}/releases")["releases"]
    shown = [(row["release_seq"], row["current"], row["restorable"], row["operation"]) for row in rows]
    assert shown == [(1, True, False, "training"), (0, False, True, "creation")]
    assert rows[0]["content_id"] == rows[0]["content_sha256"]
    lineage = f"/reef/scenarios/{scenario}/releases/{scenario}-1/lineage"
    calls: list[Any] = []
    ends_s = time.monotonic() + 20
    while not calls and time.monotonic() < ends_s:
        calls = client.get(lineage)["batches"][0]["calls"]
    assert (calls[0]["state"], calls[0]["notes"]) == ("trained", ["late"])
    assert client.get("/reef/status")["scenarios"][scenario]["head"]["release_seq"] == 1
    with pytest.raises(ReefClientError) as unknown:
        client.get(f"/reef/scenarios/{scenario}/releases/other/lineage")
    assert unknown.value.status == 404


@pytest.mark.parametrize("what", ["rollback", "promote", "promote by commit"])
def test_a_wish_is_answered_with_the_release_that_it_led_to(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path, what: str
) -> None:
    candidate = CandidateId(f"candidate-{scenario}")
    held = a_candidate_evaluated(scenario=scenario, candidate_id=candidate, verdict=Verdict.HELD)
    publish(topics, tmp_path, a_release(scenario, 0), a_release(scenario, 1), held)
    seen(rig, scenario, 2)
    bodies: dict[str, dict[str, str]] = {
        "rollback": {"release_id": f"{scenario}-0"},
        "promote": {"candidate_id": candidate},
        "promote by commit": {"release_id": f"commit-{scenario}"},
    }
    body = {**bodies[what], "command_id": f"command-{scenario}"}
    wish = what.split()[0]
    client = ReefClient(rig.url)
    shown = client.get(f"/reef/scenarios/{scenario}/releases")["held"]
    assert [one["candidate_id"] for one in shown] == [candidate]
    with a_release_service(topics, tmp_path, scenario, refuses=False):
        answer, _ = client.post(f"/reef/scenarios/{scenario}/{wish}", scenario, body)
    assert (answer["release_id"], answer["release_seq"]) == (f"{scenario}-2", 2)
    again, _ = client.post(f"/reef/scenarios/{scenario}/{wish}", scenario, body)
    assert again == answer
    with a_release_service(topics, tmp_path, scenario, refuses=False, release_seq=3):
        answer, _ = client.post(f"/reef/scenarios/{scenario}/{wish}", scenario, bodies[what])
    assert answer["release_seq"] == 3
    other = {"release_id": f"{scenario}-1", "command_id": body["command_id"]}
    with pytest.raises(ReefClientError, match="command_conflict") as reused:
        client.post(f"/reef/scenarios/{scenario}/rollback", scenario, other)
    assert reused.value.status == 409
    left = client.get(f"/reef/scenarios/{scenario}/releases")["held"]
    assert len(left) == (1 if wish == "rollback" else 0)


def test_a_refused_wish_says_why(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    publish(topics, tmp_path, a_release(scenario, 0), a_release(scenario, 1))
    seen(rig, scenario, 2)
    client = ReefClient(rig.url)
    with (
        a_release_service(topics, tmp_path, scenario, refuses=True),
        pytest.raises(ReefClientError, match="not_restorable") as refused,
    ):
        client.post(f"/reef/scenarios/{scenario}/rollback", scenario, {"release_id": f"{scenario}-0"})
    assert refused.value.status == 409
    with pytest.raises(ReefClientError) as unknown:
        client.post(f"/reef/scenarios/{scenario}/rollback", scenario, {"release_id": "nowhere"})
    assert unknown.value.status == 404
    moved = {"release_id": f"{scenario}-0", "expected_head_release_id": f"{scenario}-0"}
    with pytest.raises(ReefClientError) as overtaken:
        client.post(f"/reef/scenarios/{scenario}/rollback", scenario, moved)
    assert overtaken.value.status == 409


def test_a_wish_that_nobody_answers_is_unavailable_and_stays_in_the_log(
    topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    publish(topics, tmp_path, a_release(scenario, 0), a_release(scenario, 1))
    decided = a_decided_scenario(scenario)
    with running_keeping(topics, tmp_path, scenarios=[decided], command_wait_s_max=0.5) as rig:
        seen(rig, scenario, 2)
        with pytest.raises(ReefClientError, match="ask again") as slow:
            ReefClient(rig.url).post(
                f"/reef/scenarios/{scenario}/rollback", scenario, {"release_id": f"{scenario}-0"}
            )
        assert slow.value.status in {503, 504}
