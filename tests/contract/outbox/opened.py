"""Shell: an outbox in front of a real broker, and what it brought there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from gateway.outbox import Outbox, OutboxOptions
from gateway.outbox_metrics import OutboxMetrics
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Place, Publisher, Reader
from schemas.codec import BlobsNeededError, decode
from schemas.events import FeedbackReported
from schemas.ids import ReportId, Route, ScenarioName
from schemas.topics import INTERACTIONS, NUM_PARTITIONS_DEFAULT
from tests.builders import a_feedback_reported


def a_numbered_report(scenario: str, number: int, num_routes: int) -> FeedbackReported:
    """Give a report whose id is a number, on one of some routes."""
    return a_feedback_reported(
        scenario=ScenarioName(scenario),
        report_id=ReportId(str(number)),
        route=Route(f"{number % num_routes:016x}"),
    )


@asynccontextmanager
async def opened_outbox(access: KafkaAccess, folder: Path, **changes: Any) -> AsyncIterator[Outbox]:
    """Open an outbox that ships to a real broker."""
    blobs = open_blob_store((folder / "blobs").as_uri())
    settings: dict[str, Any] = {"folder": folder, "num_partitions": NUM_PARTITIONS_DEFAULT} | changes
    options = OutboxOptions(**settings)
    outbox = Outbox(
        options,
        open_producer=lambda: Publisher(access, blobs=blobs),
        blobs=blobs,
        metrics=OutboxMetrics(CollectorRegistry()),
    )
    async with outbox:
        yield outbox


async def reports_in_log(access: KafkaAccess, scenario: str) -> list[FeedbackReported]:
    """Read a scenario's reports from the log, partition by partition, in order, repeats included."""
    found: list[FeedbackReported] = []
    async with Reader(access) as reader:
        bounds = await reader.bounds([Place(INTERACTIONS, n) for n in range(NUM_PARTITIONS_DEFAULT)])
        for place, bound in bounds.items():
            async for record in reader.read_to_end(place.topic, place.partition, bound.start):
                with suppress(BlobsNeededError):  # another test's
                    event = decode(record.value or b"")
                    if isinstance(event, FeedbackReported) and event.scenario == scenario:
                        found.append(event)
    return found


def first_seen(reports: list[FeedbackReported]) -> dict[Route, list[int]]:
    """Give each route's numbers in the order in which they first stand in the log."""
    routes: dict[Route, dict[int, None]] = {}
    for report in reports:
        routes.setdefault(report.route, {})[int(report.report_id)] = None
    return {route: list(numbers) for route, numbers in routes.items()}
