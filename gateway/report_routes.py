"""Shell: POST /reef/report, /reef/records and /reef/records/batch: what applications say and bring.

Not the rules: gateway/reports.py; not the keeping: gateway/reporting.py and gateway/importing.py.
"""

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from gateway.aside import Aside
from gateway.catalog import Catalog
from gateway.exchange import Exchange, parse_object
from gateway.importing import RECORDS_MAX, ImportHead, Importing
from gateway.reporting import Reporting
from gateway.reports import REPORTS_MAX, GivenReport, ReportRules, read_report, refused
from gateway.rest import exchange_of
from gateway.scenarios import Scenarios
from schemas.ids import ScenarioName


def report_router(
    *,
    catalog: Catalog,
    scenarios: Scenarios,
    reporting: Reporting,
    importing: Importing,
    aside: Aside,
    body_bytes_max: int,
) -> APIRouter:
    """Make the routes by which reports and records come in."""
    router = APIRouter()

    @router.post("/reef/report")
    async def report(request: Request) -> Response:
        scenario, body, exchange = await _opened(request, catalog, body_bytes_max)
        rules = scenarios.rules(scenario)
        size_bytes = exchange.num_bytes_in
        given = await aside.done(lambda: read_reports(body, rules), size_bytes=size_bytes)
        answers = await reporting.accept(scenario, given, size_bytes=size_bytes)
        return as_json({"reports": answers} if "reports" in body else answers[0])

    @router.post("/reef/records")
    async def record(request: Request) -> Response:
        scenario, body, exchange = await _opened(request, catalog, body_bytes_max)
        records, receipts = await importing.accept(scenario, [body], _head(exchange), where="")
        return as_json({**records[0], "receipt": receipts[0]})

    @router.post("/reef/records/batch")
    async def batch(request: Request) -> Response:
        scenario, body, exchange = await _opened(request, catalog, body_bytes_max)
        given = _listed(body, "records", RECORDS_MAX)
        where = "records[{number}]."
        records, receipts = await importing.accept(scenario, given, _head(exchange), where=where)
        return as_json({"records": records, "receipts": receipts})

    return router


def read_reports(body: dict[str, Any], rules: ReportRules) -> list[GivenReport]:
    """Read one report, or the list of `{"reports": […]}`. Raises FieldError."""
    if "reports" not in body:
        return [read_report(body, rules)]
    given: list[GivenReport] = []
    for number, item in enumerate(_listed(body, "reports", REPORTS_MAX)):
        if not isinstance(item, dict):
            raise refused("expected an object, got another value: correct it", param=f"reports[{number}]")
        given.append(read_report(item, rules, where=f"reports[{number}]."))
    return given


def as_json(value: Any, status: int = 200) -> Response:
    """Answer in JSON."""
    return Response(orjson.dumps(value), status, media_type="application/json")


async def _opened(
    request: Request, catalog: Catalog, body_bytes_max: int
) -> tuple[ScenarioName, dict[str, Any], Exchange]:
    exchange = exchange_of(request)
    state = catalog.resolve(exchange.head.scenario, exchange.grant)
    exchange.scenario = state.name
    return state.name, parse_object(await exchange.body(body_bytes_max)), exchange


def _listed(body: dict[str, Any], name: str, length_max: int) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= length_max:
        got = f"{len(value)} of them" if isinstance(value, list) else "another value"
        raise refused(f"expected a list of 1 to {length_max}, got {got}: split it", param=name)
    others = sorted(set(body) - {name})
    if others:
        raise refused(
            f"expected nothing beside {name}, got {others[0][:80]!r}: put it into each of them",
            param=others[0][:80],
        )
    return value


def _head(exchange: Exchange) -> ImportHead:
    return ImportHead(
        session=exchange.head.session,
        tags=exchange.head.tags,
        is_opted_out=exchange.head.is_opted_out,
        request_id=exchange.request_id,
        size_bytes=exchange.num_bytes_in,
    )
