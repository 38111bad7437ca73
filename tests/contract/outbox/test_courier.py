import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from prometheus_client import CollectorRegistry

from gateway.courier_process import CourierProcess
from gateway.errands import Start
from gateway.outbox import Outbox, OutboxOptions
from gateway.outbox_metrics import OutboxMetrics
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess
from schemas.packed import JsonBytes
from schemas.topic_admin import ensure_topics
from schemas.topics import NUM_PARTITIONS_DEFAULT
from tests.builders import a_feedback_reported
from tests.contract.outbox.opened import a_numbered_report, first_seen, reports_in_log

pytestmark = pytest.mark.kafka
DRAIN_S = 90.0


@pytest.fixture
async def access(kafka_bootstrap: str) -> KafkaAccess:
    access = KafkaAccess(bootstrap=kafka_bootstrap)
    await ensure_topics(access)
    return access


async def _nothing() -> None: ...


@asynccontextmanager
async def opened(access: KafkaAccess, folder: Path) -> AsyncIterator[tuple[CourierProcess, Outbox]]:
    """Open an outbox whose producers stand in a courier."""
    url = (folder / "blobs").as_uri()
    courier = CourierProcess(Start(access=access, blobs_url=url), on_scenarios_moved=_nothing)
    outbox = Outbox(
        OutboxOptions(folder=folder, num_partitions=NUM_PARTITIONS_DEFAULT),
        open_producer=courier.producer,
        blobs=open_blob_store(url),
        metrics=OutboxMetrics(CollectorRegistry()),
    )
    async with courier, outbox:
        yield courier, outbox


async def test_a_courier_that_is_killed_loses_nothing_and_keeps_the_order(
    access: KafkaAccess, tmp_path: Path
) -> None:
    scenario, num_reports, killed = f"s{uuid4().hex[:20]}", 1_500, set[int]()
    async with opened(access, tmp_path) as (courier, outbox):
        for number in range(num_reports):
            await outbox.append(a_numbered_report(scenario, number, 16))
            if number % 10 == 0:
                await asyncio.sleep(0.01)
            if number % 500 == 400 and courier.pid is not None:
                killed.add(courier.pid)
                os.kill(courier.pid, signal.SIGKILL)
        assert await outbox.drain(DRAIN_S)
        assert courier.pid not in killed
    assert killed, "nothing was killed: nothing was tested"
    reports = await reports_in_log(access, scenario)
    assert first_seen(reports) == {f"{r:016x}": list(range(r, num_reports, 16)) for r in range(16)}


async def test_a_large_event_goes_by_reference_through_the_courier_too(
    access: KafkaAccess, tmp_path: Path
) -> None:
    scenario = f"s{uuid4().hex[:20]}"
    large = JsonBytes(b'"' + b"x" * 3_000_000 + b'"')
    async with opened(access, tmp_path) as (_, outbox):
        await outbox.append(a_feedback_reported(scenario=scenario, feedback=large))
        await outbox.append(a_numbered_report(scenario, 1, 1))
        assert await outbox.drain(DRAIN_S)
    assert any((tmp_path / "blobs").rglob("*")), "the large field is a blob"


async def test_a_courier_ends_with_its_gateway(access: KafkaAccess, tmp_path: Path) -> None:
    async with opened(access, tmp_path) as (courier, _):
        assert courier.pid is not None
        process = psutil.Process(courier.pid)
        assert process.is_running()
    assert not process.is_running()
