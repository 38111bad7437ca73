"""Shell: calls that were answered elsewhere, and reports about them, taken in as they stand.

Nothing is asked of a model. A call without the ids and logprobs of its sampling is `not_token_exact`.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from gateway.aside import Aside
from gateway.capture import Capture
from gateway.catalog import Catalog, require_serving
from gateway.chat import Chat
from gateway.completions import Completions
from gateway.record import PROCESSED, CallFacts, completed
from gateway.reporting import IdIndex, Reporting, accepted, conflict
from gateway.reports import GivenReport, ReportRules, identifier, read_report, refused
from gateway.sampling import PLAIN_SAMPLING
from gateway.scenarios import Recorder, Scenarios
from gateway.serving import Serving
from gateway.views import TakenId
from schemas.canonical import canonical_sha256
from schemas.errors import ReefError, RejectedError
from schemas.events import (
    Api,
    CallOutcome,
    CaptureFault,
    Event,
    InferenceCompleted,
    Sampling,
    WeightSpan,
)
from schemas.ids import Receipt, ReportId, ScenarioName, Session, Sha256, mint_receipt, route_of_import
from schemas.packed import JsonBytes

RECORDS_MAX = 1_000
"""Records in one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportHead:
    """What the request's headers say of all its records."""

    session: Session | None
    """Of all calls in it."""
    tags: Mapping[str, str]
    """Of all calls in it."""
    is_opted_out: bool
    """None of its calls may train."""
    request_id: str
    """Of the exchange."""
    size_bytes: int
    """Of the whole request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCall:
    """A call as a client imports it."""

    report_id: ReportId
    """The client's own id."""
    request: Mapping[str, Any]
    """What was asked."""
    response: Mapping[str, Any]
    """What was answered."""
    content_sha256: Sha256
    """Of both."""
    where: str
    """Where it stood."""


class Importing:
    """Takes records in."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        scenarios: Scenarios,
        reporting: Reporting,
        recorder: Recorder,
        index: IdIndex,
        aside: Aside,
        receipt_key: bytes,
    ) -> None:
        self._catalog, self._scenarios, self._reporting = catalog, scenarios, reporting
        self._aside = aside
        self._recorder, self._index, self._receipt_key = recorder, index, receipt_key

    async def accept(
        self, scenario: ScenarioName, records: Sequence[Any], head: ImportHead, *, where: str
    ) -> tuple[list[dict[str, str]], list[Receipt | None]]:
        """Take records, all or none; give the acknowledgements, and beside them the calls' receipts."""
        self._recorder.refuse_when_full()
        rules, size_bytes = self._scenarios.rules(scenario), head.size_bytes
        read = await self._aside.done(lambda: _read_all(records, rules, where), size_bytes=size_bytes)
        calls = _each_once([record for record in read if isinstance(record, GivenCall)])
        reports = [record for record in read if isinstance(record, GivenReport)]
        _check_ids_apart(calls, reports)
        async with self._index.hold(scenario, list(calls)):
            taken = await self._index.taken(scenario, list(calls))
            receipts = {call_id: self._receipt(scenario, call, taken) for call_id, call in calls.items()}
            events = await self._aside.done(
                lambda: self._events(scenario, calls, receipts, taken, head), size_bytes=size_bytes
            )
            await self._reporting.accept(
                scenario, reports, beside=receipts, also=events, size_bytes=size_bytes
            )
        return (
            [_acknowledged(scenario, record) for record in read],
            [receipts.get(_id_of(record)) for record in read],
        )

    def _receipt(self, scenario: ScenarioName, call: GivenCall, taken: Mapping[ReportId, TakenId]) -> Receipt:
        found = taken.get(call.report_id)
        if found is None:
            return mint_receipt(
                scenario,
                route_of_import(scenario, call.report_id),
                time_ms=time.time_ns() // 1_000_000,
                nonce=os.urandom(6),
                key=self._receipt_key,
            )
        if found.content_sha256 != call.content_sha256:
            raise conflict(call.report_id, call.where)
        return Receipt(found.references[0])

    def _events(
        self,
        scenario: ScenarioName,
        calls: Mapping[ReportId, GivenCall],
        receipts: Mapping[ReportId, Receipt],
        taken: Mapping[ReportId, TakenId],
        head: ImportHead,
    ) -> list[Event]:
        events: list[Event] = []
        now_us = time.time_ns() // 1000
        state = self._catalog.get(scenario)
        assert state is not None, scenario
        for call_id, call in calls.items():
            if call_id in taken:
                continue
            require_serving(state)
            assert state.serving is not None, "just required"
            events.append(_imported(scenario, call, receipts[call_id], state.serving, head, now_us))
            events.append(
                accepted(scenario, call_id, call.content_sha256, (receipts[call_id],), now_us=now_us)
            )
        return events


def _read_all(records: Sequence[Any], rules: ReportRules, where: str) -> list[GivenCall | GivenReport]:
    return [_read(record, rules, where.format(number=number)) for number, record in enumerate(records)]


def _read(record: Any, rules: ReportRules, where: str) -> GivenCall | GivenReport:
    if not isinstance(record, dict):
        raise refused("expected an object, got another value: correct it", param=where.rstrip("."))
    record_id = identifier(record.get("agent_record_id"), param=f"{where}agent_record_id")
    payload = record.get("payload")
    if not isinstance(payload, dict):
        raise refused("expected an object, got another value: correct it", param=f"{where}payload")
    match record.get("request_type"):
        case "inference":
            return _read_call(ReportId(record_id), payload, where)
        case "report":
            body = {**payload, "agent_record_id": record_id}
            return read_report(body, rules, where=f"{where}payload.", is_import=True)
        case _:
            raise refused(
                "expected inference or report, got another word: correct it", param=f"{where}request_type"
            )


def _read_call(call_id: ReportId, payload: Mapping[str, Any], where: str) -> GivenCall:
    response = payload.get("response")
    if not isinstance(response, dict):
        raise refused("expected the answer, an object, got none: add it", param=f"{where}payload.response")
    try:
        digest = canonical_sha256(payload)
    except RejectedError as error:
        raise refused(str(error), param=f"{where}payload") from error
    request = {name: value for name, value in payload.items() if name != "response"}
    return GivenCall(
        report_id=call_id, request=request, response=response, content_sha256=digest, where=where
    )


def _imported(
    scenario: ScenarioName,
    call: GivenCall,
    receipt: Receipt,
    serving: Serving,
    head: ImportHead,
    now_us: int,
) -> InferenceCompleted:
    capture = _captured(call.response)
    api, sampling, faults = _asked(call.request)
    facts = CallFacts(
        receipt=receipt,
        scenario=scenario,
        route=route_of_import(scenario, call.report_id),
        session=head.session,
        api=api,
        model=str(call.response.get("model") or call.request.get("model") or "unknown"),
        request=JsonBytes(orjson.dumps(call.request)),
        sampling=sampling,
        faults=faults,
        logprobs_mode=PROCESSED,
        request_id=head.request_id,
        serving=serving,
        tags=head.tags,
        is_opted_out=head.is_opted_out,
        started_at_us=now_us,
    )
    event = completed(
        facts,
        capture,
        outcome=CallOutcome.COMPLETED,
        response=orjson.dumps(call.response),
        weight_spans=(
            WeightSpan(release_seq=serving.release_seq, num_tokens=capture.num_completion_tokens()),
        ),
        completed_at_us=now_us,
    )
    return replace(event, imported_id=call.report_id)


def _captured(response: Mapping[str, Any]) -> Capture:
    """Take the ids and logprobs that the answer holds; of an answer of another shape, none."""
    capture = Capture()
    try:
        capture.answer(dict(response))
    except ReefError:
        return Capture()
    return capture


def _asked(request: Mapping[str, Any]) -> tuple[Api, Sampling, tuple[CaptureFault, ...]]:
    """Read how it was sampled; a request that says nothing we understand is not exact."""
    dialect = Completions() if "prompt" in request else Chat()
    try:
        ask = dialect.ask(dict(request), PLAIN_SAMPLING)
    except RejectedError:
        return dialect.api, PLAIN_SAMPLING, (CaptureFault.NOT_TOKEN_EXACT,)
    return dialect.api, ask.sampling, ask.faults


def _each_once(calls: Sequence[GivenCall]) -> dict[ReportId, GivenCall]:
    once: dict[ReportId, GivenCall] = {}
    for call in calls:
        first = once.setdefault(call.report_id, call)
        if first.content_sha256 != call.content_sha256:
            raise conflict(call.report_id, call.where)
    return once


def _check_ids_apart(calls: Mapping[ReportId, GivenCall], reports: Sequence[GivenReport]) -> None:
    for report in reports:
        if report.report_id in calls:
            raise conflict(str(report.report_id), report.where)


def _id_of(record: GivenCall | GivenReport) -> ReportId:
    assert record.report_id is not None, "an imported record has an id"
    return record.report_id


def _acknowledged(scenario: ScenarioName, record: GivenCall | GivenReport) -> dict[str, str]:
    """Give exactly what importers compare: one field more would stop them."""
    kind = "inference" if isinstance(record, GivenCall) else "report"
    return {"agent_record_id": _id_of(record), "request_type": kind, "scenario": scenario}
