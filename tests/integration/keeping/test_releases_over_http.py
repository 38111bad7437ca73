import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from reef_client import ReefClient
from reef_client.client import ReefClientError

from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Place, Publisher, Reader
from schemas.codec import decode
from schemas.errors import ConflictError
from schemas.events import Event, Operation, OutcomeState, PromoteCandidate, RollBackRelease, Verdict
from schemas.ids import BatchId, CandidateId, ReleaseId, ScenarioName, Sha256
from schemas.records import rejection
from schemas.topics import COMMANDS, NUM_PARTITIONS_DEFAULT
from tests.builders import a_candidate_evaluated, a_release_published, an_outcome_settled
from tests.integration.keeping.rig import KeepingRig, a_decided_scenario, running_keeping

pytestmark = pytest.mark.kafka


def a_release(scenario: str, seq: int, **changes: Any) -> Any:
    named = {
        "scenario": scenario,
        "release_seq": seq,
        "release_id": ReleaseId(f"{scenario}-{seq}"),
        "content_sha256": Sha256(f"{seq:064x}"),
        "operation": Operation.TRAINING if seq else Operation.CREATION,
        "published_at_us": time.time_ns() // 1000,
    }
    return a_release_published(**{**named, **changes})


def publish(access: KafkaAccess, folder: Path, *events: Event) -> None:
    async def send() -> None:
        async with Publisher(access, blobs=open_blob_store(folder.as_uri())) as publisher:
            for event in events:
                await publisher.publish(event)

    asyncio.run(send())


def seen(rig: KeepingRig, scenario: str, num_releases: int) -> None:
    ends_s = time.monotonic() + 20
    while len(rig.run(rig.keeping.views.releases(scenario))) < num_releases:
        assert time.monotonic() < ends_s
        time.sleep(0.05)


@contextmanager
def a_release_service(access: KafkaAccess, folder: Path, scenario: str, *, refuses: bool) -> Iterator[None]:
    """Answer the scenario's next command, as the release service will."""

    async def answer() -> None:
        blobs = open_blob_store(folder.as_uri())
        places = [Place(COMMANDS, n) for n in range(NUM_PARTITIONS_DEFAULT)]
        async with Reader(access) as reader, Publisher(access, blobs=blobs) as publisher:
            await reader.follow({place: bound.end for place, bound in (await reader.bounds(places)).items()})
            ready.set()
            async for record in reader:
                command = decode(record.value or b"")
                if (
                    not isinstance(command, RollBackRelease | PromoteCandidate)
                    or command.scenario != scenario
                ):
                    continue
                if refuses:
                    error = ConflictError("expected a restorable target", reason="not_restorable")
                    await publisher.publish(rejection(record, error, "release"))
                elif isinstance(command, RollBackRelease):
                    target = command.target_release_id
                    await publisher.publish(
                        a_release(
                            scenario,
                            2,
                            operation=Operation.ROLLBACK,
                            rollback_target_release_id=target,
                        )
                    )
                elif command.candidate_id.startswith("commit-"):
                    held: dict[str, str] = {"candidate_id": CandidateId(f"candidate-{scenario}")}
                    held["artifact_uri"] = f"lakefs://reef-{scenario}/{command.candidate_id}/"
                    await publisher.publish(a_release(scenario, 2, operation=Operation.PROMOTE, **held))
                else:
                    await publisher.publish(
                        a_release(scenario, 2, operation=Operation.PROMOTE, candidate_id=command.candidate_id)
                    )
                return

    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(answer()), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield
    thread.join(20)
    assert not thread.is_alive()


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


@pytest.mark.parametrize("wish", ["rollback", "promote", "promote by commit"])
def test_a_wish_is_answered_with_the_release_that_it_led_to(
    rig: KeepingRig, topics: KafkaAccess, scenario: ScenarioName, tmp_path: Path, wish: str
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
    body = {**bodies[wish], "command_id": f"command-{scenario}"}
    wish = wish.split()[0]
    client = ReefClient(rig.url)
    shown = client.get(f"/reef/scenarios/{scenario}/releases")["held"]
    assert [one["candidate_id"] for one in shown] == [candidate]
    with a_release_service(topics, tmp_path, scenario, refuses=False):
        answer, _ = client.post(f"/reef/scenarios/{scenario}/{wish}", scenario, body)
    assert (answer["release_id"], answer["release_seq"]) == (f"{scenario}-2", 2)
    again, _ = client.post(f"/reef/scenarios/{scenario}/{wish}", scenario, body)
    assert again == answer
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


def test_there_is_no_harness_yet(rig: KeepingRig, scenario: ScenarioName) -> None:
    with pytest.raises(ReefClientError) as refused:
        ReefClient(rig.url).get("/reef/harness", extra_headers={"x-reef-scenario": scenario})
    assert (refused.value.status, refused.value.content_type) == (404, "application/json")
