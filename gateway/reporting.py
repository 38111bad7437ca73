"""Shell: reports become durable: ids are looked up, calls of other routes split off, all appended at once.

The order is the correctness: ids are held, then looked up, then appended, then remembered, then answered.
So the same report twice at once is one report, and a report that was answered is in the outbox.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter

from gateway.aside import Aside
from gateway.reports import GivenReport, as_recipe_sees, refused, report_events
from gateway.scenarios import Recorder, Scenarios
from gateway.views import TakenId, Views
from schemas.codec import decode
from schemas.errors import ConflictError
from schemas.events import Event, FeedbackReported, ReportAccepted
from schemas.feedback_writer import FeedbackSaid
from schemas.ids import RECEIPT_PREFIX, Receipt, ReportId, ScenarioName, Sha256, route_of, route_of_import
from schemas.topics import REPORT_IDS, key_of

CATCH_UP_S_MAX = 2.0
"""How long the first reports after a start wait for the index; then the folds alone notice repeats."""

Answer = Mapping[str, Any]
_NO_RECEIPTS: Mapping[ReportId, Receipt] = {}


class ReportMetrics:
    """Counts reports by what became of them at the door."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reports = Counter(
            "reef_gateway_reports_total",
            "Reports, by result: accepted, repeated or conflict.",
            ("scenario", "result"),
            registry=registry,
        )

    def count(self, scenario: str, result: str, num_reports: int = 1) -> None:
        """Count reports."""
        self._reports.labels(scenario, result).inc(num_reports)


class CaughtUp(Protocol):
    """Who reads the log into the views."""

    async def caught_up(self, deadline_s: float) -> bool:
        """Wait until the log was read to its end once; False when it is not by the deadline."""


class IdIndex:
    """Which ids are taken, as far as this gateway can know: its own memory, the views, and the outbox."""

    def __init__(self, views: Views, following: CaughtUp, recorder: Recorder) -> None:
        self._views, self._following, self._recorder = views, following, recorder
        self._held: dict[tuple[str, str], asyncio.Event] = {}
        self._has_waited = False

    @asynccontextmanager
    async def hold(self, scenario: ScenarioName, ids: Sequence[ReportId]) -> AsyncIterator[None]:
        """Keep others from deciding about these ids meanwhile."""
        keys = [(scenario, report_id) for report_id in ids]
        while busy := [self._held[key] for key in keys if key in self._held]:
            await busy[0].wait()
        released = asyncio.Event()
        self._held.update(dict.fromkeys(keys, released))
        try:
            yield
        finally:
            for key in keys:
                del self._held[key]
            released.set()

    async def taken(self, scenario: ScenarioName, ids: Sequence[ReportId]) -> Mapping[ReportId, TakenId]:
        """Say which of these ids are taken."""
        if not ids:
            return {}
        if not self._has_waited:
            await self._following.caught_up(CATCH_UP_S_MAX)
            self._has_waited = True
        found = dict(await self._views.taken(scenario, ids))
        for report_id in ids:
            if report_id not in found and (waiting := await self._waiting(scenario, report_id)):
                found[report_id] = waiting
        return found

    async def _waiting(self, scenario: ScenarioName, report_id: ReportId) -> TakenId | None:
        """Look into the outbox: after a crash it holds what no view has seen yet."""
        key = key_of(accepted(scenario, report_id, Sha256(""), ()))
        for value in await self._recorder.waiting(REPORT_IDS, key):
            event = decode(value)
            if isinstance(event, ReportAccepted):
                return TakenId(content_sha256=event.content_sha256, references=event.references)
        return None

    async def remember(self, events: Sequence[Event]) -> None:
        """Remember the ids and reports among events that were appended."""
        await self._views.note(
            [event for event in events if isinstance(event, ReportAccepted)],
            [event for event in events if isinstance(event, FeedbackReported)],
        )

    async def receipts(self, scenario: ScenarioName, names: Sequence[str]) -> Mapping[str, Receipt]:
        """Find the receipts of imported calls by the client's ids."""
        imported = [ReportId(name) for name in names if not name.startswith(RECEIPT_PREFIX)]
        taken = await self.taken(scenario, imported)
        return {
            name: Receipt(found.references[0])
            for name, found in taken.items()
            if is_imported_call(scenario, name, found)
        }


class Reporting:
    """Takes reports."""

    def __init__(
        self,
        *,
        scenarios: Scenarios,
        recorder: Recorder,
        index: IdIndex,
        aside: Aside,
        metrics: ReportMetrics,
    ) -> None:
        self._scenarios, self._recorder, self._index = scenarios, recorder, index
        self._aside, self._metrics = aside, metrics

    async def accept(
        self,
        scenario: ScenarioName,
        given: Sequence[GivenReport],
        *,
        beside: Mapping[ReportId, Receipt] = _NO_RECEIPTS,
        also: Sequence[Event] = (),
        size_bytes: int = 0,
    ) -> list[Answer]:
        """Take reports, all or none, and give their answers in order.

        `beside` are the receipts of calls imported in the same request, `also` the events that tell of them;
        a request of many bytes is computed aside.
        Raises FieldError, ConflictError when an id is taken by other content, UnavailableError.
        """
        self._recorder.refuse_when_full()
        named = await self._with_receipts(scenario, given, beside, size_bytes)
        once = _each_once(named)
        ids = [report_id for report_id, report in once.items() if report.report_id is not None]
        async with self._index.hold(scenario, ids):
            taken = await self._index.taken(scenario, ids)
            try:
                new = {name: report for name, report in once.items() if not _is_repeat(name, report, taken)}
            except ConflictError:
                self._metrics.count(scenario, "conflict")
                raise
            events = [*also, *await self._events(scenario, new, size_bytes)]
            if events:
                await self._recorder.append(*events)
                await self._index.remember(events)
        self._metrics.count(scenario, "accepted", len(new))
        self._metrics.count(scenario, "repeated", len(given) - len(new))
        return [self._answer(scenario, report_id, report) for report_id, report in named]

    async def _with_receipts(
        self,
        scenario: ScenarioName,
        given: Sequence[GivenReport],
        beside: Mapping[ReportId, Receipt],
        size_bytes: int,
    ) -> list[tuple[ReportId, GivenReport]]:
        """Put receipts where clients quoted their own ids of imported calls, and mint the ids not given."""
        names = [name for report in given for name in report.said.references if name not in beside]
        receipts: dict[str, Receipt] = {**await self._index.receipts(scenario, names)}
        receipts |= {str(call_id): receipt for call_id, receipt in beside.items()}
        return await self._aside.done(lambda: _named(given, receipts), size_bytes=size_bytes)

    async def _events(
        self, scenario: ScenarioName, new: Mapping[ReportId, GivenReport], size_bytes: int
    ) -> list[Event]:
        now_us = time.time_ns() // 1000
        replaced = [ReportId(report.said.supersedes) for report in new.values() if report.said.supersedes]
        old = await self._index.taken(scenario, replaced)
        return await self._aside.done(
            lambda: _events_of(scenario, new, old, now_us=now_us), size_bytes=size_bytes
        )

    def _answer(self, scenario: ScenarioName, report_id: ReportId, report: GivenReport) -> Answer:
        answer: dict[str, Any] = {
            "agent_record_id": report_id,
            "scenario": scenario,
            "request_type": "report",
        }
        if not report.said.is_withdrawal:
            why = self._scenarios.why_untrained(scenario, as_recipe_sees(report.said))
            if why is not None:
                answer |= {"trains": False, "why": why}
        return answer


def _minted() -> ReportId:
    return ReportId("rep_" + os.urandom(16).hex())


def _named(
    given: Sequence[GivenReport], receipts: Mapping[str, Receipt]
) -> list[tuple[ReportId, GivenReport]]:
    return [
        (report.report_id or _minted(), replace(report, said=_quoting_receipts(report, receipts)))
        for report in given
    ]


def _events_of(
    scenario: ScenarioName,
    new: Mapping[ReportId, GivenReport],
    old: Mapping[ReportId, TakenId],
    *,
    now_us: int,
) -> list[Event]:
    events: list[Event] = []
    for report_id, report in new.items():
        superseded = _superseded(report, old, new)
        if not report.said.references and not superseded and report.said.is_withdrawal:
            raise refused(
                "expected references beside withdraw, since the report it takes back is not known here: "
                "quote the receipts of that report",
                param=f"{report.where}references",
            )
        events += report_events(
            report.said, report_id=report_id, scenario=scenario, superseded=superseded, now_us=now_us
        )
        calls = _calls_of(report, superseded)
        events.append(accepted(scenario, report_id, report.content_sha256, calls, now_us=now_us))
    return events


def _each_once(named: Sequence[tuple[ReportId, GivenReport]]) -> dict[ReportId, GivenReport]:
    """Take equal reports of one request as one. Raises ConflictError when one id has two contents."""
    once: dict[ReportId, GivenReport] = {}
    for report_id, report in named:
        first = once.setdefault(report_id, report)
        if first.content_sha256 != report.content_sha256:
            raise conflict(report_id, report.where)
    return once


def _is_repeat(report_id: ReportId, report: GivenReport, taken: Mapping[ReportId, TakenId]) -> bool:
    found = taken.get(report_id)
    if found is not None and found.content_sha256 != report.content_sha256:
        raise conflict(report_id, report.where)
    return found is not None


def conflict(report_id: str, where: str) -> ConflictError:
    """Say that an id is taken."""
    return ConflictError(
        f"expected {where}agent_record_id to be new or its content as before, got {report_id!r} with other "
        "content: use a new id, and supersedes to replace that report",
        reason="report_conflict",
    )


def _quoting_receipts(report: GivenReport, receipts: Mapping[str, Receipt]) -> FeedbackSaid:
    quoted: dict[str, None] = {}
    for number, name in enumerate(report.said.references):
        reference = receipts.get(name, name)
        param = f"{report.where}references[{number}]"
        if not reference.startswith(RECEIPT_PREFIX) and not report.is_import:
            raise refused(
                "expected a receipt issued for this scenario, got another text: quote "
                "x-reef-agent-record-id of the answer, or import the call first",
                param=param,
                reason="unknown_receipt",
            )
        if reference in quoted:
            raise refused("expected each call once, got one again: remove it", param=param)
        quoted[reference] = None
    return replace(report.said, references=tuple(quoted))


def _superseded(
    report: GivenReport, old: Mapping[ReportId, TakenId], new: Mapping[ReportId, GivenReport]
) -> tuple[Receipt, ...]:
    name = report.said.supersedes
    if name is None:
        return ()
    if ReportId(name) in old:
        return tuple(Receipt(reference) for reference in old[ReportId(name)].references)
    beside = new.get(ReportId(name))
    return () if beside is None else tuple(Receipt(reference) for reference in beside.said.references)


def _calls_of(report: GivenReport, superseded: Sequence[Receipt]) -> tuple[Receipt, ...]:
    """Give the calls that a later report must take this one back from."""
    own = tuple(Receipt(reference) for reference in report.said.references)
    return own or tuple(superseded)


def accepted(
    scenario: ScenarioName,
    report_id: ReportId,
    content_sha256: Sha256,
    references: tuple[Receipt, ...],
    *,
    now_us: int = 0,
) -> ReportAccepted:
    """State that an id is taken."""
    return ReportAccepted(
        scenario=scenario,
        report_id=report_id,
        content_sha256=content_sha256,
        references=references,
        accepted_at_us=now_us,
    )


def is_imported_call(scenario: ScenarioName, name: str, found: TakenId) -> bool:
    """Whether a taken id is that of an imported call: its one receipt lies on the id's own route."""
    return len(found.references) == 1 and route_of(Receipt(found.references[0])) == route_of_import(
        scenario, name
    )
