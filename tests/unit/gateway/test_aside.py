"""While a large batch is taken, others are answered: an order of events, whatever the speed."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from gateway.app import Gateway
from gateway.aside import BYTES_MIN, Aside
from gateway.catalog import Catalog
from gateway.health import Health
from gateway.importing import Importing
from gateway.metrics import CallMetrics
from gateway.report_routes import report_router
from gateway.reporting import IdIndex, Reporting, ReportMetrics
from gateway.rest import fastapi_app
from gateway.scenarios import ScenarioOptions, Scenarios
from gateway.views import Views
from schemas.events import FeedbackReported, TrainingTarget
from schemas.ids import ScenarioName, Session, mint_receipt, route_of_session
from schemas.recipe import load_recipe
from schemas.settings.scenarios import Scenario
from schemas.settings.streams import StreamsSettings
from tests.gateway_rig import RECEIPT_KEY, ListedLines, MemoryRecorder

SCENARIO = ScenarioName("capitals")
SAO = "recipes.sao.recipe:SAORecipe"
WAIT_S_MAX = 20.0


class HeldKeys(Sequence[bytes]):
    """Receipt keys that are given out only once somebody lets go; before that, whoever reads them waits."""

    def __init__(self) -> None:
        self.began, self.released = threading.Event(), threading.Event()

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return (RECEIPT_KEY,)[index]

    def __iter__(self) -> Iterator[bytes]:
        self.began.set()
        assert self.released.wait(WAIT_S_MAX), "the loop stood still meanwhile"
        yield RECEIPT_KEY


class EmptyLogRecorder(MemoryRecorder):
    """A recorder before a log that has everything."""

    async def waiting(self, topic: str, key: bytes) -> Sequence[bytes]:
        """Say that nothing waits."""
        return ()


class AlwaysCaughtUp:
    """A reader that is at the log's end."""

    async def caught_up(self, deadline_s: float) -> bool:
        """Say so."""
        return True


@pytest.fixture
def keys() -> HeldKeys:
    return HeldKeys()


@pytest.fixture
def recorder() -> EmptyLogRecorder:
    return EmptyLogRecorder()


@pytest.fixture
async def client(
    keys: HeldKeys, recorder: EmptyLogRecorder, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    registry, views = CollectorRegistry(), Views(tmp_path)
    gateway = Gateway(
        routes={"/healthz": {"GET": Health(checks={}, registry=registry).healthz}},
        rest=fastapi_app(),
        tokens=(),
        metrics=CallMetrics(registry),
        log=ListedLines([]),
    )
    gateway._rest.include_router(_reports(keys, recorder, views, registry))
    transport = httpx.ASGITransport(gateway)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://gateway", timeout=2 * WAIT_S_MAX
    ) as found:
        yield found
    views.close()


def _reports(keys: HeldKeys, recorder: EmptyLogRecorder, views: Views, registry: CollectorRegistry) -> Any:
    catalog, aside = Catalog(()), Aside()
    options = ScenarioOptions(
        configured=[_decided(SCENARIO)],
        make=_decided,
        streams=StreamsSettings(),
        receipt_keys=keys,
        score_abs_max=10.0,
    )
    scenarios = Scenarios(options, catalog=catalog, recorder=recorder)
    index = IdIndex(views, AlwaysCaughtUp(), recorder)
    reporting = Reporting(
        scenarios=scenarios, recorder=recorder, index=index, aside=aside, metrics=ReportMetrics(registry)
    )
    importing = Importing(
        catalog=catalog,
        scenarios=scenarios,
        reporting=reporting,
        recorder=recorder,
        index=index,
        aside=aside,
        receipt_key=RECEIPT_KEY,
    )
    return report_router(
        catalog=catalog,
        scenarios=scenarios,
        reporting=reporting,
        importing=importing,
        aside=aside,
        body_bytes_max=1_048_576,
    )


def _decided(name: ScenarioName) -> Scenario:
    return Scenario(
        name=name, recipe=SAO, options=load_recipe(SAO).options_type(), target=TrainingTarget.FULL
    )


def a_receipt(number: int) -> str:
    route = route_of_session(SCENARIO, Session(f"s{number}"))
    return mint_receipt(SCENARIO, route, time_ms=number, nonce=b"nonce!", key=RECEIPT_KEY)


def reports(num_reports: int) -> list[dict[str, Any]]:
    text = "x" * (2 * BYTES_MIN // num_reports)
    return [
        {"score": 1, "references": [a_receipt(number)], "feedback": text} for number in range(num_reports)
    ]


BATCHES = {
    "/reef/report": {
        "reports": [{**body, "agent_record_id": f"f{n}"} for n, body in enumerate(reports(300))]
    },
    "/reef/records/batch": {
        "records": [
            {"agent_record_id": f"f{n}", "request_type": "report", "payload": body}
            for n, body in enumerate(reports(300))
        ]
    },
}


@pytest.mark.parametrize("path", BATCHES)
async def test_health_is_answered_while_a_large_batch_is_taken(
    client: httpx.AsyncClient, keys: HeldKeys, recorder: EmptyLogRecorder, path: str
) -> None:
    batch = asyncio.create_task(client.post(path, json=BATCHES[path]))
    assert await asyncio.to_thread(keys.began.wait, WAIT_S_MAX)
    assert (await client.get("/healthz")).status_code == 200
    assert not batch.done()
    assert recorder.events == []
    keys.released.set()
    assert (await batch).status_code == 200
    taken = [event.report_id for event in recorder.events if isinstance(event, FeedbackReported)]
    assert taken == [f"f{number}" for number in range(300)]


async def test_a_large_batch_with_one_bad_report_is_refused_whole(
    client: httpx.AsyncClient, keys: HeldKeys, recorder: EmptyLogRecorder
) -> None:
    keys.released.set()
    given = reports(300)
    given[299]["score"] = True
    answer = await client.post("/reef/report", json={"reports": given})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "reports[299].score")
    assert recorder.events == []


async def test_large_requests_take_turns_in_their_order_and_small_ones_wait_for_none() -> None:
    aside, order, may_end = Aside(), list[str](), threading.Event()

    def held() -> None:
        assert may_end.wait(WAIT_S_MAX), "the loop stood still meanwhile"
        order.append("first")

    large = [
        asyncio.create_task(aside.done(compute, size_bytes=BYTES_MIN))
        for compute in (held, lambda: order.append("second"))
    ]
    await asyncio.sleep(0)
    await aside.done(lambda: order.append("small"), size_bytes=BYTES_MIN - 1)
    may_end.set()
    await asyncio.gather(*large)
    assert order == ["small", "first", "second"]
