import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from reef_client import ReefClient

from deploy.embedded.kafka import Kafka
from schemas.bus import KafkaAccess
from schemas.ids import ScenarioName
from schemas.topic_admin import ensure_topics
from tests.integration.keeping.rig import KeepingRig, a_decided_scenario, running_keeping
from tests.integration.keeping.test_imports import events_in_log
from tests.scripted_upstream import ScriptedUpstream

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
CHAT = {"messages": [{"role": "user", "content": "hello"}]}
NUM_USERS = 6


class Users:
    """Users who call and report in a loop, and what they were answered."""

    def __init__(self, url: str, scenario: str) -> None:
        self._url, self._scenario = url, scenario
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(NUM_USERS)]
        self.receipts: list[list[str]] = [[] for _ in range(NUM_USERS)]
        self.failures: list[str] = []

    def __enter__(self) -> "Users":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, user: int) -> None:
        client = ReefClient(self._url, timeout_s=20)
        headers = {"x-reef-tag-session": f"user-{user}"}
        while not self._stop.is_set():
            try:
                _, receipt = client.inference_with_record(
                    self._scenario, "/v1/chat/completions", CHAT, extra_headers=headers
                )
                report = {"references": [receipt], "score": 1, "agent_record_id": f"on-{receipt}"}
                client.report(self._scenario, report)
            except (OSError, RuntimeError) as error:
                self.failures.append(repr(error))
                continue
            self.receipts[user].append(receipt)


@pytest.mark.parametrize(
    "away_s",
    [10, pytest.param(60, marks=[pytest.mark.faults, pytest.mark.timeout(600)])],
)
async def test_nothing_fails_and_nothing_is_lost_while_the_broker_is_away(
    kafka_factory: Callable[[], Kafka],
    tmp_path: Path,
    scenario: ScenarioName,
    upstream: ScriptedUpstream,
    away_s: float,
) -> None:
    kafka = kafka_factory()
    access = KafkaAccess(bootstrap=kafka.bootstrap)
    await ensure_topics(access)
    decided = a_decided_scenario(scenario)
    with running_keeping(access, tmp_path, scenarios=[decided], engine_urls=[upstream.url]) as rig:
        with Users(rig.url, scenario) as users:
            await asyncio.sleep(1)
            await asyncio.to_thread(kafka.daemon.kill)
            await asyncio.sleep(away_s)
            assert rig.keeping.outbox.num_events > 0, "nothing waited: nothing was tested"
            await asyncio.to_thread(kafka.start)
            await asyncio.to_thread(kafka.wait_ready)
            await asyncio.sleep(1)
        assert users.failures == []
        assert rig.run(rig.keeping.outbox.drain(25))
        calls, reports = await events_in_log(access, rig, scenario)
    receipts = [receipt for listed in users.receipts for receipt in listed]
    assert len(receipts) > 50
    assert {call.receipt for call in calls} >= set(receipts)
    assert {report.references[0] for report in reports} >= set(receipts)
    for user, listed in enumerate(users.receipts):
        in_log = dict.fromkeys(call.receipt for call in calls if call.session == f"user-{user}")
        assert [receipt for receipt in in_log if receipt in listed] == listed, "the order of a session"


async def test_a_gateway_that_starts_without_a_broker_answers_and_catches_up_later(
    kafka_factory: Callable[[], Kafka],
    tmp_path: Path,
    scenario: ScenarioName,
    upstream: ScriptedUpstream,
) -> None:
    kafka = kafka_factory()
    access = KafkaAccess(bootstrap=kafka.bootstrap)
    await ensure_topics(access)
    await asyncio.to_thread(kafka.stop)
    decided = a_decided_scenario(scenario)
    with running_keeping(access, tmp_path, scenarios=[decided], engine_urls=[upstream.url]) as rig:
        client = ReefClient(rig.url)
        receipt, seconds = await asyncio.to_thread(_call_and_report, client, scenario)
        assert seconds < 20
        assert (await asyncio.to_thread(client.get, f"/reef/records/{receipt}"))["state"] == "pending"
        assert views_lag_s(rig) == float("inf"), "the log was never read"
        await asyncio.to_thread(kafka.start)
        await asyncio.to_thread(kafka.wait_ready)
        calls, reports = await events_in_log(access, rig, scenario)
        assert ([call.receipt for call in calls], len(reports)) == ([receipt], 1)
        await _until_placed(rig, client, receipt)
        async with asyncio.timeout(30):
            while views_lag_s(rig) == float("inf"):  # each of its two readers comes back in its own time
                await asyncio.sleep(0.1)


def views_lag_s(rig: KeepingRig) -> float:
    lag_s = rig.registry.get_sample_value("reef_gateway_views_lag_seconds")
    assert lag_s is not None
    return lag_s


def _call_and_report(client: ReefClient, scenario: str) -> tuple[str, float]:
    started = time.monotonic()
    _, receipt = client.inference_with_record(scenario, "/v1/chat/completions", CHAT)
    report = {"references": [receipt], "score": 1, "agent_record_id": "early"}
    for _ in range(3):
        client.report(scenario, report)
    return str(receipt), time.monotonic() - started


async def _until_placed(rig: KeepingRig, client: ReefClient, receipt: str) -> None:
    async with asyncio.timeout(30):
        while True:
            found = await asyncio.to_thread(client.get, f"/reef/records/{receipt}")
            if found["offset"] is not None and found["reports"]:
                return
            await asyncio.sleep(0.1)
