import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer
from typer.testing import CliRunner, Result

from deploy.commands.forget import forget
from deploy.configuration import OVERRIDES_ALLOWED
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Publisher, Reader
from schemas.codec import decode
from schemas.errors import RejectedError
from schemas.events import ErasureRequested, Event, Operation, OutcomeReason, OutcomeState
from schemas.ids import BatchId, CandidateId, Receipt, ReleaseId, ScenarioName, Session, route_of_session
from schemas.packed import JsonBytes
from schemas.topic_admin import ensure_topics
from schemas.topics import INTERACTIONS, NUM_PARTITIONS_DEFAULT
from tests.builders import (
    a_candidate_trained,
    a_receipt,
    a_release_published,
    a_scenario_configured,
    a_training_sample,
    an_experience_assembled,
    an_inference_completed,
    an_outcome_settled,
)

pytestmark = pytest.mark.kafka

APP = typer.Typer()
APP.command(context_settings=OVERRIDES_ALLOWED)(forget)
SESSION = Session("to be forgotten")


@pytest.fixture
def access(kafka_bootstrap: str) -> KafkaAccess:
    """The shared broker, with all topics."""
    found = KafkaAccess(bootstrap=kafka_bootstrap)
    asyncio.run(ensure_topics(found))
    return found


@pytest.fixture
def scenario() -> ScenarioName:
    """A scenario of this test alone."""
    return ScenarioName(f"s{uuid4().hex[:16]}")


def reef_forget(access: KafkaAccess, *words: str) -> Result:
    return CliRunner().invoke(APP, [*words, "--bootstrap", access.bootstrap])


def written(access: KafkaAccess, folder: Path, *events: Event) -> None:
    async def write() -> None:
        blobs = open_blob_store((folder / "blobs").as_uri())
        async with Publisher(access, blobs=blobs) as publisher:
            for event in events:
                await publisher.publish(event)

    asyncio.run(write())


def erasures(access: KafkaAccess, scenario: str, places: list[dict[str, Any]]) -> list[ErasureRequested]:
    async def read() -> list[ErasureRequested]:
        found: list[ErasureRequested] = []
        async with Reader(access) as reader:
            for place in places:
                at = place["offset"]
                async for record in reader.read_range(place["topic"], place["partition"], at, at):
                    event = decode(record.value or b"")
                    assert isinstance(event, ErasureRequested)
                    assert record.key == scenario.encode()
                    found.append(event)
        return found

    return asyncio.run(read())


def a_story(scenario: ScenarioName) -> tuple[list[Event], list[Receipt]]:
    """Four calls of a session: trained, held in a batch, dropped, open; a fifth of another session."""
    route = route_of_session(scenario, SESSION)
    receipts = [a_receipt(number, scenario=scenario, route=route) for number in range(5)]
    sessions = [SESSION] * 4 + [Session("another")]
    calls = [
        an_inference_completed(receipt=receipt, scenario=scenario, route=route, session=session)
        for receipt, session in zip(receipts, sessions, strict=True)
    ]
    trained, sealed = BatchId(f"trained-{scenario}"), BatchId(f"sealed-{scenario}")
    samples = [
        a_training_sample(
            scenario=scenario,
            batch_id=batch,
            experience=an_experience_assembled(scenario=scenario, session=SESSION, receipts=(receipt,)),
        )
        for batch, receipt in ((trained, receipts[0]), (sealed, receipts[1]))
    ]
    chain = [
        a_release_published(
            scenario=scenario,
            release_seq=seq,
            release_id=ReleaseId(f"{scenario}-{seq}"),
            parent_release_id=ReleaseId(f"{scenario}-{seq - 1}") if seq else None,
            operation=Operation.TRAINING if seq else Operation.CREATION,
            candidate_id=CandidateId(f"c-{scenario}-{seq}") if seq else None,
            batch_ids=(trained,) if seq == 1 else (),
        )
        for seq in range(3)
    ]
    base = a_candidate_trained(
        scenario=scenario, candidate_id=CandidateId(f"c-{scenario}-2"), base_release_id=chain[1].release_id
    )
    fates: dict[int, dict[str, Any]] = {
        0: {"state": OutcomeState.TRAINED, "reason": None, "batch_id": trained},
        2: {"state": OutcomeState.DROPPED, "reason": OutcomeReason.GREEDY, "batch_id": None},
    }
    outcomes = [
        an_outcome_settled(scenario=scenario, receipt=receipts[number], **fate)
        for number, fate in fates.items()
    ]
    configured = a_scenario_configured(
        scenario=scenario, is_retired=True
    )  # no worker of another test seals it
    return [configured, *calls, *samples, *chain, base, *outcomes], receipts


def test_a_session_is_forgotten_in_every_partition_and_what_learned_from_it_is_told(
    access: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    events, receipts = a_story(scenario)
    written(access, tmp_path, *events)
    looked = reef_forget(access, "-s", scenario, "--session", SESSION, "--dry-run", "--json")
    assert looked.exit_code == 0, looked.exception
    asked = reef_forget(access, "-s", scenario, "--session", SESSION, "--json")
    told = json.loads(asked.stdout)
    assert told["blobs"] == {"own": 0, "deleted": 0, "shared": 0}
    assert {**told, "written": [], "remains": []} == {**json.loads(looked.stdout), "remains": []}
    assert [(place["topic"], place["partition"]) for place in told["written"]] == [
        (INTERACTIONS, partition) for partition in range(NUM_PARTITIONS_DEFAULT)
    ]
    (erasure,) = set(erasures(access, scenario, told["written"]))
    assert (erasure.scenario, erasure.session, erasure.receipts) == (scenario, SESSION, ())
    assert told["calls"] == {"found": 4, "outcomes": {"greedy": 1, "pending": 2, "trained": 1}}
    assert told["batches"] == [f"sealed-{scenario}", f"trained-{scenario}"]
    assert [(one["release_seq"], one["is_direct"]) for one in told["releases"]] == [(1, True), (2, False)]
    assert told["last_untouched_release_id"] == f"{scenario}-0"
    assert INTERACTIONS in {one["topic"] for one in told["remains"]}
    people = reef_forget(access, "-s", scenario, "-r", receipts[0], "-r", receipts[4], "--dry-run").stdout
    assert "calls found in the log: 2; their outcomes so far: 1 pending, 1 trained" in people
    assert "nothing is written" in people


def test_large_fields_of_the_calls_go_at_once_but_for_those_that_others_have_too(
    access: KafkaAccess, scenario: ScenarioName, tmp_path: Path
) -> None:
    route = route_of_session(scenario, SESSION)
    own, common = (JsonBytes(b'"%s"' % (str(uuid4()).encode() + letter * 300_000)) for letter in (b"a", b"b"))
    calls = [
        an_inference_completed(
            receipt=a_receipt(number, scenario=scenario, route=route),
            scenario=scenario,
            route=route,
            session=session,
            request=request,
            response=common,
        )
        for number, (session, request) in enumerate([(SESSION, own), (Session("another"), common)])
    ]
    written(access, tmp_path, a_scenario_configured(scenario=scenario, is_retired=True), *calls)
    folder = tmp_path / "blobs"

    def kept() -> set[bytes]:
        return {path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert kept() == {own, common}
    words = ("-s", scenario, "--session", SESSION, "--blobs.url", folder.as_uri(), "--json")
    looked = json.loads(reef_forget(access, *words, "--dry-run").stdout)
    assert looked["blobs"] == {"own": 1, "deleted": 0, "shared": 1}
    assert kept() == {own, common}
    assert json.loads(reef_forget(access, *words, "--keep-blobs").stdout)["blobs"]["deleted"] == 0
    assert kept() == {own, common}
    asked = json.loads(reef_forget(access, *words).stdout)
    assert asked["blobs"] == {"own": 1, "deleted": 1, "shared": 1}
    assert kept() == {common}
    assert asked["calls"]["found"] == 1, "found without its blobs"


def test_a_wish_that_would_reach_nothing_is_refused(access: KafkaAccess, scenario: ScenarioName) -> None:
    unknown = reef_forget(access, "-s", scenario, "--session", SESSION)
    assert isinstance(unknown.exception, RejectedError)
    assert "a scenario that was configured" in str(unknown.exception)
    assert reef_forget(access, "-s", scenario).exit_code == 2
    assert reef_forget(access, "-s", scenario, "-r", "rec_forged").exit_code == 2
    assert reef_forget(access, "--session", SESSION).exit_code == 2
