"""Pure: a report arrives: whether it is well-formed and new, what it waits for, and what it replaces.

Not what it credits: that is streams/credit.py. A report waits for every call it names, and for the report it
supersedes, until its window ends; then it takes what came.
"""

import json
import math
from typing import Any

from schemas.canonical import canonical
from schemas.errors import RejectedError
from schemas.events import FeedbackReported
from schemas.ids import RECEIPT_PREFIX, Receipt, ReportId, Route, ScenarioName, route_of, route_of_import
from schemas.packed import JsonBytes
from schemas.partitions import partition_of
from streams.entries import CallStatus, Report, ReportStatus, digest
from streams.moment import SECOND_US
from streams.report_index import report_key
from streams.scenario import Scenario
from streams.window import SessionMoment, limits_of, receipt_of

SCORE_ABS_MAX = 1_000_000
REFERENCES_MAX = 1_000
REPORT_ID_CHARS_MAX = 512
_CHAIN_MAX = 100
"""Reports that replace one another; a longer chain is followed no further."""


def note_report(moment: SessionMoment, event: FeedbackReported) -> str | None:
    """Remember a report that arrives and give its key; None when it is a repeat. Raises RejectedError."""
    state = moment.state
    _check_place(moment, event)
    scenario = state.meet(event.scenario)
    _check_content(event, scenario)
    key = report_key(event.scenario, event.report_id, event.part)
    known = state.report(key)
    content = _content_digest(event)
    if known is not None:
        if known.digest != content and not _says_the_same(moment, known, event):
            raise RejectedError(
                f"expected report {event.report_id} with the content it had before, got another: "
                "choose a new id, and name this one in supersedes to correct it",
                reason="report_conflict",
            )
        moment.count("repeated_report")
        return None
    report = _waiting(moment, event, content)
    replacing = _replacing(moment, event)
    if replacing:
        status = ReportStatus.SUPERSEDED
        report = report._replace(status=status, superseded_by=max(replacing, key=_offset_in(moment)))
    state.put_report(key, report)
    if state.reports.num_waiting > limits_of(scenario).orphans_max:
        _check_room(moment, key, scenario)
    return key


def is_ready(moment: SessionMoment, report: Report) -> bool:
    """Whether all that a report waits for has come."""
    if moment.state.scenarios[report.scenario] is None or (report.awaited and not report.is_withdrawal):
        return False
    return report.supersedes is None or bool(_parts_here(moment, report, report.supersedes))


def hold_calls(moment: SessionMoment, report: Report) -> None:
    """Keep the calls that a waiting report names until it has waited enough."""
    limits = limits_of(moment.state.scenarios[report.scenario])
    longest_us = (limits.join_window_s + limits.orphan_window_s) * SECOND_US
    for reference in report.references:
        receipt = receipt_of(moment, report.scenario, reference)
        call = None if receipt is None else moment.state.call(receipt)
        if receipt is None or call is None or call.status is not CallStatus.PENDING:
            continue
        held_us = min(report.deadline_us + 1, call.arrived_us + longest_us)
        if held_us > call.deadline_us:
            moment.state.put_call(receipt, call._replace(deadline_us=held_us))


def replaced_by(moment: SessionMoment, key: str, report: Report) -> list[tuple[str, Report]]:
    """Give the reports whose place this one takes, and whose place those took, in log order."""
    found: dict[str, Report] = {}
    names = [] if report.supersedes is None else [report.supersedes]
    while names and len(found) < _CHAIN_MAX:
        for other_key, other in _parts_here(moment, report, names.pop()):
            if other_key == key or other_key in found:
                continue
            found[other_key] = other
            if other.supersedes is not None:
                names.append(other.supersedes)
            if other.superseded_by:
                names.append(report_id_of(other.superseded_by))
    return sorted(found.items(), key=lambda item: item[1].offset)


def parsed_json(data: JsonBytes | None, name: str) -> Any:
    """Read a report's JSON. Raises RejectedError."""
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError as error:
        raise RejectedError(
            f"expected {name} as JSON, got other bytes: {error}", reason="bad_json"
        ) from error


def _waiting(moment: SessionMoment, event: FeedbackReported, content: bytes) -> Report:
    limits = limits_of(moment.state.scenarios[event.scenario])
    awaited = [name for name in event.references if receipt_of(moment, event.scenario, name) is None]
    return Report(
        status=ReportStatus.WAITING,
        is_session=False,
        is_withdrawal=event.is_withdrawal,
        offset=moment.timed.offset,
        deadline_us=moment.state.now_us + limits.orphan_window_s * SECOND_US,
        quoted_us=0,
        arrived_us=moment.state.now_us,
        route=event.route,
        scenario=event.scenario,
        digest=content,
        supersedes=event.supersedes,
        superseded_by="",
        references=event.references,
        awaited=tuple(awaited),
        experiences=(),
    )


def _replacing(moment: SessionMoment, event: FeedbackReported) -> list[str]:
    """Reports that came before this one and take its place, unless it takes theirs."""
    found: list[str] = []
    for key in moment.state.reports.superseding(event.scenario, event.report_id):
        other = moment.state.report(key)
        assert other is not None, key
        if other.route == event.route and report_id_of(key) != event.supersedes:
            found.append(key)
    return found


def _offset_in(moment: SessionMoment) -> Any:
    def offset(key: str) -> int:
        report = moment.state.report(key)
        assert report is not None, key
        return report.offset

    return offset


def _parts_here(moment: SessionMoment, report: Report, report_id: ReportId) -> list[tuple[str, Report]]:
    found: list[tuple[str, Report]] = []
    for key in moment.state.reports.parts(report.scenario, report_id):
        other = moment.state.report(key)
        assert other is not None, key
        if other.route == report.route:
            found.append((key, other))
    return found


def report_id_of(key: str) -> ReportId:
    """Read the report's id of its key."""
    return ReportId(key.split("/", 2)[2])


def _check_place(moment: SessionMoment, event: FeedbackReported) -> None:
    key = moment.timed.key
    for reference in event.references:
        route = _route_of_reference(event.scenario, reference)
        if key != route.encode() or event.route != route:
            raise RejectedError(
                f"expected key and route {route} of the calls it names, got {key[:64]!r} and "
                f"{event.route}: one event per route, keyed by it",
                reason="route_mismatch",
            )
    if key != event.route.encode():
        raise RejectedError(
            f"expected the route {event.route} as key, got {key[:64]!r}", reason="route_mismatch"
        )
    expected = partition_of(key, moment.state.num_partitions)
    if expected != moment.state.partition:
        raise RejectedError(
            f"expected partition {expected} for key {event.route}, got {moment.state.partition}: "
            "partition by murmur2 (librdkafka: partitioner=murmur2_random)",
            reason="wrong_partition",
        )


def _route_of_reference(scenario: ScenarioName, reference: Receipt) -> Route:
    if reference.startswith(RECEIPT_PREFIX):
        return route_of(reference)
    return route_of_import(scenario, reference)


def _check_content(event: FeedbackReported, scenario: Scenario | None) -> None:
    problem = _problem_of(event) or (scenario and not event.is_withdrawal and _missing(event, scenario))
    if problem:
        raise RejectedError(f"{problem}: correct the report and send it again", reason="bad_report")


def _problem_of(event: FeedbackReported) -> str | None:
    if not event.report_id.strip() or len(event.report_id) > REPORT_ID_CHARS_MAX:
        return f"expected a report id of 1 to {REPORT_ID_CHARS_MAX} characters, got {len(event.report_id)}"
    if len(event.references) > REFERENCES_MAX or len(set(event.references)) < len(event.references):
        return f"expected at most {REFERENCES_MAX} references, each once, got {len(event.references)}"
    if event.score is not None and not (math.isfinite(event.score) and abs(event.score) <= SCORE_ABS_MAX):
        return f"expected a finite score within ±{SCORE_ABS_MAX}, got {event.score}"
    if event.supersedes == event.report_id or (event.is_withdrawal and event.supersedes is None):
        return "expected supersedes to name an earlier report, got this one or none"
    return None


def _missing(event: FeedbackReported, scenario: Scenario) -> str | None:
    schema = scenario.recipe.report
    if schema.is_score_required and event.score is None:
        return f"expected a score, as {scenario.recipe_path} requires, got none"
    if len(event.references) < schema.num_references_min and event.num_parts == 1:
        return f"expected {schema.num_references_min} references or more, got {len(event.references)}"
    metadata = parsed_json(event.metadata, "metadata") if schema.required_metadata else None
    absent = [
        name for name in schema.required_metadata if not isinstance(metadata, dict) or name not in metadata
    ]
    return f"expected metadata.{absent[0]}, as {scenario.recipe_path} requires, got none" if absent else None


def _check_room(moment: SessionMoment, key: str, scenario: Scenario | None) -> None:
    """Refuse the report that has no room to wait."""
    report = moment.state.report(key)
    if report is not None and report.status is ReportStatus.WAITING and not is_ready(moment, report):
        raise RejectedError(
            f"expected at most {limits_of(scenario).orphans_max} reports that wait in a partition, got one "
            "more: report after the call, or raise orphans_max",
            reason="orphan_overflow",
        )


def _content_digest(event: FeedbackReported) -> bytes:
    """Digest what a report says, as written: quick, and equal for equal bytes."""
    said = (
        event.route,
        repr(event.references),
        repr(event.score),
        repr(event.supersedes),
        repr(event.is_withdrawal),
    )
    return digest(
        *(part.encode() + b"\0" for part in said), event.feedback or b"", b"\0", event.metadata or b""
    )


def _says_the_same(moment: SessionMoment, known: Report, event: FeedbackReported) -> bool:
    """Compare canonical forms: the same JSON may be written in many ways."""
    earlier = moment.read(known.offset, FeedbackReported)
    return earlier is not None and _canonical(earlier) == _canonical(event)


def _canonical(event: FeedbackReported) -> bytes:
    said = {
        "route": event.route,
        "references": list(event.references),
        "score": event.score,
        "feedback": parsed_json(event.feedback, "feedback"),
        "metadata": parsed_json(event.metadata, "metadata"),
        "supersedes": event.supersedes,
        "withdraw": event.is_withdrawal,
    }
    return canonical({name: value for name, value in said.items() if value is not None})
