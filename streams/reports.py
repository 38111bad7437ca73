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
from schemas.ids import RECEIPT_PREFIX, Receipt, ReportId, Route, ScenarioName, route_of_import, scenario_name
from schemas.packed import JsonBytes
from schemas.partitions import partition_of
from streams.entries import Report, ReportStatus, digest, is_pending
from streams.moment import SECOND_US
from streams.receipts import route_in
from streams.report_index import report_key
from streams.scenario import Scenario
from streams.session_state import SessionState
from streams.window import SessionMoment, limits_of, receipt_of

SCORE_ABS_MAX = 1_000_000
REFERENCES_MAX = 1_000
"""Of one report, and so the most parts it can have."""
REPORT_ID_CHARS_MAX = 512
_CHAIN_MAX = 100
"""Reports that replace one another; a longer chain is followed no further."""


def arriving_report(moment: SessionMoment, event: FeedbackReported) -> tuple[str, Report] | None:
    """Make the entry of a report that arrives; None when it is a repeat. Raises RejectedError."""
    state = moment.state
    scenario = state.scenario(event.scenario)
    _check_content(event, scenario)
    key = report_key(event.scenario, event.report_id, event.part)
    known = state.report(key)
    content = _content_digest(event)
    if known is not None:
        _check_repeat(moment, known, content, event)
        moment.count("repeated_report")
        return None
    report = _waiting(moment, event, content)
    _check_place(moment, event, report)
    replacing = _replacing(state, event)
    if replacing:
        latest, _ = max(replacing, key=lambda each: each[1].offset)
        report = report._replace(status=ReportStatus.SUPERSEDED, superseded_by=latest)
    return key, report


def is_ready(state: SessionState, report: Report) -> bool:
    """Whether all that a report waits for has come."""
    if state.scenario(report.scenario) is None or (report.awaited and not report.is_withdrawal):
        return False
    return report.supersedes is None or bool(parts_here(state, report, report.supersedes))


def check_room(state: SessionState, report: Report) -> None:
    """Refuse a report that would have to wait where too many do. Raises RejectedError."""
    orphans_max = limits_of(state.scenario(report.scenario)).orphans_max
    if state.report_index.num_waiting >= orphans_max:
        raise RejectedError(
            f"expected at most {orphans_max} reports that wait in a partition, got one more: report after "
            "the call, or raise orphans_max",
            reason="orphan_overflow",
        )


def hold_calls(state: SessionState, report: Report) -> None:
    """Keep the calls that a waiting report names until it has waited enough."""
    limits = limits_of(state.scenario(report.scenario))
    longest_us = (limits.join_window_s + limits.orphan_window_s) * SECOND_US
    for reference in report.references:
        receipt = receipt_of(state, report.scenario, reference)
        call = None if receipt is None else state.call(receipt)
        if receipt is None or call is None or not is_pending(call):
            continue
        held_us = min(report.deadline_us + 1, call.arrived_us + longest_us)
        if held_us > call.deadline_us:
            state.calls.put(receipt, call._replace(deadline_us=held_us))


def replaced_by(state: SessionState, key: str, report: Report) -> list[tuple[str, Report]]:
    """Give the reports whose place this one takes, and whose place those took, in log order."""
    if report.supersedes is None:
        return []
    found: dict[str, Report] = {}
    names = [report.supersedes]
    while names and len(found) < _CHAIN_MAX:
        for other_key, other in parts_here(state, report, names.pop()):
            if other_key == key or other_key in found:
                continue
            found[other_key] = other
            if other.supersedes is not None:
                names.append(other.supersedes)
            if other.superseded_by:
                names.append(report_id_in(other.superseded_by))
    return sorted(found.items(), key=lambda item: item[1].offset)


def parts_here(state: SessionState, report: Report, report_id: ReportId) -> list[tuple[str, Report]]:
    """Find the parts of another report that speak of the same route."""
    found: list[tuple[str, Report]] = []
    for part in range(REFERENCES_MAX):
        key = report_key(report.scenario, report_id, part)
        other = state.report(key)
        if other is not None and other.route == report.route:
            found.append((key, other))
    return found


def report_id_in(key: str) -> ReportId:
    """Read a report's id of its key."""
    return ReportId(key.split("/", 2)[2])


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
    state = moment.state
    limits = limits_of(state.scenario(event.scenario))
    awaited = [name for name in event.references if receipt_of(state, event.scenario, name) is None]
    return Report(
        ReportStatus.WAITING,
        False,
        event.is_withdrawal,
        moment.timed.offset,
        state.now_us + limits.orphan_window_s * SECOND_US,
        0,
        state.now_us,
        event.route,
        event.scenario,
        content,
        event.supersedes,
        "",
        event.references,
        tuple(awaited),
        (),
    )


def _replacing(state: SessionState, event: FeedbackReported) -> list[tuple[str, Report]]:
    """Find reports that came before this one and take its place, unless it takes theirs."""
    found: list[tuple[str, Report]] = []
    for key in state.report_index.superseding(event.scenario, event.report_id):
        other = state.report(key)
        assert other is not None, key
        if other.route == event.route and report_id_in(key) != event.supersedes:
            found.append((key, other))
    return found


def _check_place(moment: SessionMoment, event: FeedbackReported, report: Report) -> None:
    """Check key and partition; a partition that holds all the calls is the right one."""
    key = moment.timed.key
    for reference in event.references:
        route = _route_of_reference(event.scenario, reference)
        if event.route != route:
            raise RejectedError(
                f"expected the route {route} of the calls it names, got {event.route}: one event per route",
                reason="route_mismatch",
            )
    if key != event.route.encode():
        raise RejectedError(
            f"expected the route {event.route} as key, got {key[:64]!r}", reason="route_mismatch"
        )
    if event.references and not report.awaited:
        return
    state = moment.state
    expected = partition_of(key, state.num_partitions)
    if expected != state.partition:
        raise RejectedError(
            f"expected partition {expected} for key {event.route}, got {state.partition}: partition by "
            "murmur2 (librdkafka: partitioner=murmur2_random)",
            reason="wrong_partition",
        )


def _route_of_reference(scenario: ScenarioName, reference: Receipt) -> Route:
    if reference.startswith(RECEIPT_PREFIX):
        return route_in(reference)
    return route_of_import(scenario, reference)


def _check_content(event: FeedbackReported, scenario: Scenario | None) -> None:
    if scenario is None:
        scenario_name(event.scenario)
    problem = _problem_of_names(event) or _problem_of(event)
    if problem is None and scenario is not None and not event.is_withdrawal:
        problem = _missing(event, scenario)
    if problem is not None:
        raise RejectedError(f"{problem}: correct the report and send it again", reason="bad_report")


def _problem_of_names(event: FeedbackReported) -> str | None:
    if not event.report_id.strip() or len(event.report_id) > REPORT_ID_CHARS_MAX:
        return f"expected a report id of 1 to {REPORT_ID_CHARS_MAX} characters, got {len(event.report_id)}"
    if len(event.references) > REFERENCES_MAX or not 0 <= event.part < event.num_parts <= REFERENCES_MAX:
        return (
            f"expected at most {REFERENCES_MAX} references and parts counted from 0, got "
            f"{len(event.references)} references, part {event.part} of {event.num_parts}"
        )
    if len(event.references) > 1 and len(set(event.references)) < len(event.references):
        return "expected each reference once, got one again"
    names = (event.report_id, event.supersedes or "", *event.references)
    return "expected names without zero characters, got one" if "\0" in "".join(names) else None


def _problem_of(event: FeedbackReported) -> str | None:
    score = event.score
    if score is not None and not (math.isfinite(score) and abs(score) <= SCORE_ABS_MAX):
        return f"expected a finite score within ±{SCORE_ABS_MAX}, got {score}"
    if event.supersedes == event.report_id or (event.is_withdrawal and event.supersedes is None):
        return "expected supersedes to name an earlier report, got this one or none"
    return None


def _missing(event: FeedbackReported, scenario: Scenario) -> str | None:
    schema = scenario.recipe.report
    if schema.is_score_required and event.score is None:
        return f"expected a score, as {scenario.recipe_path} requires, got none"
    if len(event.references) < schema.num_references_min and event.num_parts == 1:
        return f"expected {schema.num_references_min} references or more, got {len(event.references)}"
    if not schema.required_metadata:
        return None
    metadata = parsed_json(event.metadata, "metadata")
    given = metadata if isinstance(metadata, dict) else {}
    absent = [name for name in schema.required_metadata if name not in given]
    return f"expected metadata.{absent[0]}, as {scenario.recipe_path} requires, got none" if absent else None


def _content_digest(event: FeedbackReported) -> bytes:
    """Digest what a report says, as written: quick, and equal for equal bytes."""
    said = f"{event.route}\0{event.score}\0{event.supersedes}\0{event.is_withdrawal}\0{event.references}"
    return digest(said.encode(), b"\0", event.feedback or b"", b"\0", event.metadata or b"")


def _check_repeat(moment: SessionMoment, known: Report, content: bytes, event: FeedbackReported) -> None:
    """Tell a repeat from a conflict; the same JSON may be written in many ways, so canonical forms count."""
    if known.digest == content:
        return
    earlier = moment.read(known.offset, FeedbackReported)
    if earlier is None or _canonical(earlier) != _canonical(event):
        raise RejectedError(
            f"expected report {event.report_id} with the content it had before, got another: choose a new "
            "id, and name this one in supersedes to correct it",
            reason="report_conflict",
        )


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
