import asyncio
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.embedded.kafka import Kafka
from schemas.bus import KafkaAccess
from schemas.packed import JsonBytes
from schemas.topic_admin import ensure_topics
from tests.builders import a_feedback_reported
from tests.contract.outbox.opened import a_numbered_report, first_seen, opened_outbox, reports_in_log

pytestmark = pytest.mark.kafka
DRAIN_S = 60.0


def a_scenario() -> str:
    return f"s{uuid4().hex[:20]}"


@pytest.fixture
async def access(kafka_bootstrap: str) -> KafkaAccess:
    access = KafkaAccess(bootstrap=kafka_bootstrap)
    await ensure_topics(access)
    return access


@pytest.mark.parametrize("durability", ["process", "disk"])
async def test_what_is_kept_stands_in_kafka_once_and_in_order(
    access: KafkaAccess, tmp_path: Path, durability: str
) -> None:
    scenario = a_scenario()
    async with opened_outbox(access, tmp_path, durability=durability) as outbox:
        await asyncio.gather(*[outbox.append(a_numbered_report(scenario, n, 30)) for n in range(2_000)])
        assert await outbox.drain(DRAIN_S)
    reports = await reports_in_log(access, scenario)
    assert len(reports) == 2_000, "nothing failed, so nothing may stand twice"
    assert first_seen(reports) == {f"{r:016x}": list(range(r, 2_000, 30)) for r in range(30)}


async def test_an_event_too_large_for_the_log_goes_there_by_reference(
    access: KafkaAccess, tmp_path: Path
) -> None:
    scenario = a_scenario()
    body = JsonBytes(b'"' + b"x" * 3_000_000 + b'"')
    async with opened_outbox(access, tmp_path) as outbox:
        await outbox.append(a_feedback_reported(scenario=scenario, feedback=body))
        assert await outbox.drain(DRAIN_S)
    assert any((tmp_path / "blobs").rglob("*")), "the large field is a blob"


async def test_the_order_of_each_key_holds_while_the_broker_dies_and_comes_back(
    kafka_factory: Callable[[], Kafka], tmp_path: Path
) -> None:
    kafka = kafka_factory()
    access = KafkaAccess(bootstrap=kafka.bootstrap)
    await ensure_topics(access)
    scenario = a_scenario()
    num_reports = 3_000
    async with opened_outbox(access, tmp_path) as outbox:

        async def load() -> None:
            for number in range(num_reports):
                await outbox.append(a_numbered_report(scenario, number, 16))
                if number % 20 == 0:
                    await asyncio.sleep(0.02)

        loading = asyncio.create_task(load())
        for _ in range(2):
            await asyncio.sleep(0.7)
            await asyncio.to_thread(kafka.daemon.kill)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(kafka.start)
            await asyncio.to_thread(kafka.wait_ready)
        await loading
        assert await outbox.drain(DRAIN_S)
    reports = await reports_in_log(access, scenario)
    assert first_seen(reports) == {f"{r:016x}": list(range(r, num_reports, 16)) for r in range(16)}


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_what_was_acknowledged_is_in_kafka_after_twenty_kills(
    access: KafkaAccess, tmp_path: Path
) -> None:
    scenario, acknowledged, first = a_scenario(), set[int](), 0
    chance = random.Random(7)
    for _ in range(20):
        acknowledged |= await _killed(access.bootstrap, tmp_path, scenario, first, chance.randrange(1, 2_000))
        first = 1_000_000 + max(acknowledged)
    async with opened_outbox(access, tmp_path) as outbox:
        assert await outbox.drain(DRAIN_S)
    reports = await reports_in_log(access, scenario)
    stand = {int(report.report_id) for report in reports}
    assert len(acknowledged) > 1_000, "too little was acknowledged to prove anything"
    assert acknowledged <= stand
    assert all(numbers == sorted(numbers) for numbers in first_seen(reports).values())


async def _killed(bootstrap: str, folder: Path, scenario: str, first: int, after: int) -> set[int]:
    """Run the child, kill it without warning after some acknowledgements; give all that it said."""
    command = [
        sys.executable,
        "-m",
        "tests.contract.outbox.child",
        bootstrap,
        str(folder),
        scenario,
        str(first),
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    lines: list[str] = []
    with child, child.stdout:
        while len(lines) < after:
            lines.append(await asyncio.to_thread(child.stdout.readline))
            assert lines[-1], "the child ended by itself"
        child.kill()
        lines += await asyncio.to_thread(child.stdout.readlines)
    return {int(line) for line in lines if line.strip().isdigit() and line.endswith("\n")}
