"""Shell: GET /reef/records/{receipt}, /reef/explain/{name}, /reef/status: a call's fate, and how all goes.

Not the finding: gateway/lookup.py, gateway/explaining.py; not the checks of readiness: gateway/health.py.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from gateway.auth import visible
from gateway.catalog import Catalog
from gateway.explaining import Explaining
from gateway.gauges import StreamGauges, stream_gauges
from gateway.lookup import Lookup
from gateway.neighbours import metrics_texts
from gateway.outbox import Outbox
from gateway.report_routes import as_json
from gateway.rest import exchange_of
from gateway.views import Views

Problems = Callable[[], Awaitable[Mapping[str, str]]]
"""Says what is wrong, by the name of the check; empty when nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusParts:
    """What /reef/status looks at."""

    catalog: Catalog
    """Scenarios and what serves in them."""
    views: Views
    """What the log says."""
    views_problem: Callable[[], str | None]
    """What keeps the views from being up to date."""
    outbox: Outbox
    """What the log does not have yet."""
    problems: Problems
    """Health of each dependency."""
    metrics_ports: Mapping[str, int]
    """Where the other services show their metrics; those of streams say what waits."""


def call_router(lookup: Lookup, explaining: Explaining, status_parts: StatusParts) -> APIRouter:
    """Make the routes that tell of calls."""
    router = APIRouter()

    @router.get("/reef/records/{receipt}")
    async def record(request: Request, receipt: str) -> Response:
        exchange = exchange_of(request)
        with_body = request.query_params.get("include") == "body"
        found = await lookup.call(
            receipt, exchange.grant, scenario=exchange.head.scenario, with_body=with_body
        )
        return as_json(found)

    @router.get("/reef/explain/{name}")
    async def explain(request: Request, name: str) -> Response:
        exchange = exchange_of(request)
        return as_json(await explaining.explain(name, exchange.grant, scenario=exchange.head.scenario))

    @router.get("/reef/status")
    async def status(request: Request) -> Response:
        names = visible(exchange_of(request).grant, status_parts.catalog.names())
        return as_json(await status_of(status_parts, names))

    return router


async def status_of(parts: StatusParts, names: tuple[str, ...]) -> dict[str, Any]:
    """Say how all goes, for the scenarios that the caller may know of."""
    problems = dict(await parts.problems())
    if (problem := parts.views_problem()) is not None:
        problems["views"] = problem
    texts = await metrics_texts(parts.metrics_ports)
    gauges = stream_gauges(texts)
    return {
        "scenarios": {name: await _scenario_status(parts, name, gauges) for name in names},
        "outbox": {
            "num_events": parts.outbox.num_events,
            "size_bytes": parts.outbox.size_bytes,
            "oldest_age_s": round(parts.outbox.oldest_age_s(), 3),
            "is_full": parts.outbox.is_full,
        },
        "problems": problems,
        "metrics_ports": dict(parts.metrics_ports),
        "services": {name: text is not None for name, text in texts.items()},
    }


async def _scenario_status(parts: StatusParts, name: str, gauges: StreamGauges | None) -> dict[str, Any]:
    state = parts.catalog.get(name)
    serving = None if state is None else state.serving
    latest = await parts.views.latest(name)
    head = await parts.views.head(name)
    return {
        "head": None if head is None else _release_name(head),
        "serving": None
        if serving is None
        else {"release_id": serving.release_id, "release_seq": serving.release_seq},
        "wanted_release_id": None if state is None else state.wanted_release_id,
        "swap_problem": None if state is None else state.swap_problem,
        "open_calls": 0 if state is None else len(state.streams),
        "pending_calls": await parts.views.num_pending(name),
        "pending_experiences": None if gauges is None else gauges.waiting.get(name, 0),
        "batches_in_flight": None if gauges is None else gauges.in_flight.get(name, 0),
        "consumer_lag": None if gauges is None else dict(gauges.lag),
        "outcomes": dict(await parts.views.outcomes_by_reason(name)),
        "last_training": latest.get("trained"),
        "last_training_failure": latest.get("training_failed"),
        "last_swap": latest.get("swapped"),
        "last_swap_failure": latest.get("swap_failed"),
        "recipe": latest.get("configured", {}).get("recipe"),
        "target": latest.get("configured", {}).get("target"),
    }


def _release_name(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("release_id", "release_seq", "operation", "kind", "content_sha256")}
