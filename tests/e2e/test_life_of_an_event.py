"""One call goes round: receipt, experience, batch, candidate, release, swap; whatever is killed meanwhile."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment, served, until

pytestmark = [pytest.mark.kafka, pytest.mark.lakefs, pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with served(tmp_path_factory.mktemp("life")) as deployment:
        yield deployment


def goes_round(deployment: Deployment, killed: str | None) -> None:
    """Two calls are answered and reported, and become the next release, which then answers."""
    before = deployment.releases()[0]
    calls = [deployment.ask() for _ in range(2)]
    assert {release_id for _, release_id in calls} == {before["release_id"]}
    if killed is not None:
        deployment.kill(killed)
    for number, (receipt, _) in enumerate(calls):
        deployment.report(receipt, float(number))
    receipts = [receipt for receipt, _ in calls]
    until(
        lambda: all(deployment.record(receipt)["release_id"] for receipt in receipts),
        "the calls were not trained",
    )
    records = [deployment.record(receipt) for receipt in receipts]
    assert {record["state"] for record in records} == {"trained"}
    head = deployment.releases()[0]
    assert head["release_seq"] == before["release_seq"] + 1
    assert {record["release_id"] for record in records} == {head["release_id"]}
    assert {record["batch_id"] for record in records} == set(head["batch_ids"])
    until(deployment.answers_with_head, "the release was not served")


def test_a_call_goes_round(deployment: Deployment) -> None:
    goes_round(deployment, killed=None)


@pytest.mark.parametrize("program", ["kafka", "trainer", "release", "engine", "streams"])
def test_a_call_goes_round_though_a_program_is_killed(deployment: Deployment, program: str) -> None:
    goes_round(deployment, killed=program)


def test_the_chain_is_linear_and_a_rollback_is_a_new_release_that_serves(deployment: Deployment) -> None:
    chain = deployment.releases()
    assert [row["release_seq"] for row in chain] == list(range(len(chain)))[::-1]
    assert [row["parent_release_id"] for row in chain[:-1]] == [row["release_id"] for row in chain[1:]]
    body = {"release_id": chain[-1]["release_id"]}
    deployment.http.post("/reef/scenarios/life/rollback", json=body).raise_for_status()
    until(deployment.answers_with_head, "the rollback was not served")
    head = deployment.releases()[0]
    assert (head["release_seq"], head["content_sha256"]) == (len(chain), chain[-1]["content_sha256"])


def test_an_engine_whose_worker_dies_in_a_swap_comes_back_with_the_head(deployment: Deployment) -> None:
    worker = deployment.process("engine", "Worker")
    os.kill(worker, signal.SIGSTOP)  # so that the swap waits for it
    first = deployment.releases()[1]
    body = {"release_id": first["release_id"]}
    head = deployment.http.post("/reef/scenarios/life/rollback", json=body).raise_for_status().json()
    until(lambda: deployment.wanted() == head["release_id"], "no swap was begun")
    os.kill(worker, signal.SIGKILL)
    until(deployment.answers_with_head, "the engine did not come back")


def test_a_killed_gateway_comes_back_and_has_every_call(deployment: Deployment, tmp_path: Path) -> None:
    receipt, _ = deployment.ask()
    deployment.kill("gateway")
    until(deployment.answers_with_head, "the gateway did not come back")
    deployment.report(receipt, 1.0)
    assert deployment.record(receipt)["state"] == "pending"
