"""Pure: what a report must be, and which events it becomes: one for each route that it concerns.

Not its keeping: gateway/reporting.py looks ids up and appends. Every refusal names the field as it was sent.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gateway.errors import FieldError
from gateway.fields import kind_of
from schemas.canonical import canonical
from schemas.errors import RejectedError
from schemas.events import FeedbackReported, FeedbackSource
from schemas.feedback_writer import FeedbackSaid, content_sha256, route_of_reference
from schemas.ids import RECEIPT_PREFIX, Receipt, ReportId, Route, ScenarioName, Sha256, verify_receipt
from schemas.packed import JsonBytes
from schemas.recipe import Report, ReportSchema

REPORTS_MAX = 1_000
"""Reports in one request."""
REFERENCES_MAX = 1_000
"""Calls that one report judges."""
ID_CHARS_MAX = 256
"""Of an id that a client gives."""

FIELDS = ("agent_record_id", "feedback", "metadata", "references", "score", "supersedes", "withdraw")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRules:
    """What a scenario asks of its reports."""

    scenario: ScenarioName
    """Whose receipts count."""
    schema: ReportSchema
    """What its recipe needs."""
    score_abs_max: float
    """Largest absolute score."""
    receipt_keys: Sequence[bytes]
    """Any of them proves a receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenReport:
    """A report as a client gave it, its form in order."""

    report_id: ReportId | None
    """None: the gateway mints one."""
    said: FeedbackSaid
    """What it says."""
    where: str
    """Where it stood in the request, such as `reports[3].`; empty when it was the whole."""
    content_sha256: Sha256
    """Of what it says, as given: equal content is the same report again."""
    is_import: bool = False
    """It may quote calls that are imported later."""


def read_report(
    body: Mapping[str, Any], rules: ReportRules, *, where: str = "", is_import: bool = False
) -> GivenReport:
    """Read one report. Raises FieldError, which names the field."""
    _check_names(body, where)
    is_withdrawal = _boolean(body, "withdraw", where)
    supersedes = _identifier(body, "supersedes", where)
    report_id = _identifier(body, "agent_record_id", where)
    if is_withdrawal and supersedes is None:
        raise refused(
            "expected supersedes beside withdraw: name the report that is taken back",
            param=f"{where}supersedes",
        )
    if report_id is not None and report_id == supersedes:
        raise refused(
            f"expected a report to supersede another one, got its own id {report_id!r}: give a new id",
            param=f"{where}supersedes",
        )
    said = FeedbackSaid(
        references=_references(body, rules, where),
        score=_score(body, rules, where),
        feedback=_feedback(body, where),
        metadata=_metadata(body, where),
        supersedes=supersedes,
        is_withdrawal=is_withdrawal,
    )
    if not is_withdrawal:
        _check_schema(said, rules.schema, where)
    return GivenReport(
        report_id=None if report_id is None else ReportId(report_id),
        said=said,
        where=where,
        content_sha256=content_sha256(said),
        is_import=is_import,
    )


def report_events(
    said: FeedbackSaid,
    *,
    report_id: ReportId,
    scenario: ScenarioName,
    superseded: Sequence[Receipt],
    now_us: int,
) -> tuple[FeedbackReported, ...]:
    """Split a report by route; `superseded` are the calls that the report it replaces spoke of.

    A route that only the replaced report named gets a part that takes its word back (STREAMS 20).
    """
    own = _by_route(scenario, said.references)
    old = _by_route(scenario, superseded)
    routes = [*own, *(route for route in old if route not in own)] or [_route_of_nothing(scenario, report_id)]
    taken_back = frozenset(old) - frozenset(own)
    # Once for all parts: of a thousand routes each would write and digest the whole again.
    digest, feedback, metadata = content_sha256(said), _json(said.feedback), _json(said.metadata)
    return tuple(
        FeedbackReported(
            report_id=report_id,
            scenario=scenario,
            route=route,
            references=tuple(own.get(route) or old.get(route) or ()),
            part=part,
            num_parts=len(routes),
            score=None if route in taken_back else said.score,
            feedback=None if route in taken_back else feedback,
            metadata=None if route in taken_back else metadata,
            supersedes=None if said.supersedes is None else ReportId(said.supersedes),
            is_withdrawal=said.is_withdrawal or route in taken_back,
            content_sha256=digest,
            source=FeedbackSource.HTTP,
            reported_at_us=now_us,
        )
        for part, route in enumerate(routes)
    )


def as_recipe_sees(said: FeedbackSaid) -> Report:
    """Give the report in the words of a recipe."""
    return Report(score=said.score, feedback=said.feedback, metadata=said.metadata or {})


def _by_route(scenario: ScenarioName, references: Sequence[str]) -> dict[Route, list[Receipt]]:
    routes: dict[Route, list[Receipt]] = {}
    for reference in references:
        routes.setdefault(route_of_reference(scenario, reference), []).append(Receipt(reference))
    return routes


def _route_of_nothing(scenario: ScenarioName, report_id: ReportId) -> Route:
    return route_of_reference(scenario, f"report:{report_id}")


def _check_names(body: Mapping[str, Any], where: str) -> None:
    for name in body:
        near = get_close_matches(name, FIELDS, n=1, cutoff=0.8)
        if name not in FIELDS and near:
            raise refused(
                f"expected a field of a report, got {name[:80]!r}: did you mean {near[0]!r}?",
                param=f"{where}{name[:80]}",
            )


def _boolean(body: Mapping[str, Any], name: str, where: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise refused(f"expected true or false, got {kind_of(value)}: correct it", param=f"{where}{name}")
    return bool(value)


def _identifier(body: Mapping[str, Any], name: str, where: str) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    return identifier(value, param=f"{where}{name}")


def identifier(value: Any, *, param: str) -> str:
    """Read an id that a client gives. Raises FieldError."""
    if not isinstance(value, str) or not value.strip() or len(value) > ID_CHARS_MAX:
        got = f"a text of {len(value)} characters" if isinstance(value, str) else kind_of(value)
        raise refused(
            f"expected an id of 1 to {ID_CHARS_MAX} characters that is not blank, got {got}: correct it, "
            "or leave it out",
            param=param,
        )
    return value


def _score(body: Mapping[str, Any], rules: ReportRules, where: str) -> float | None:
    value = body.get("score")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(f"expected a number, got {kind_of(value)}: correct it", param=f"{where}score")
    if not math.isfinite(value) or abs(value) > rules.score_abs_max:
        raise refused(
            f"expected a finite score of at most {rules.score_abs_max:g} either way, got another: scale it",
            param=f"{where}score",
        )
    return float(value)


def _feedback(body: Mapping[str, Any], where: str) -> str | Mapping[str, Any] | None:
    value = body.get("feedback")
    if value is not None and not isinstance(value, str | dict):
        raise refused(
            f"expected a text or an object, got {kind_of(value)}: correct it", param=f"{where}feedback"
        )
    _check_canonical(value, f"{where}feedback")
    return value


def _metadata(body: Mapping[str, Any], where: str) -> Mapping[str, Any] | None:
    value = body.get("metadata")
    if value is not None and not isinstance(value, dict):
        raise refused(f"expected an object, got {kind_of(value)}: correct it", param=f"{where}metadata")
    # Fields that this contract does not know are a recipe's own: they are kept, not thrown away.
    more = {name: found for name, found in body.items() if name not in FIELDS and found is not None}
    for name in more:
        if value and name in value:
            raise refused(
                f"expected {name[:80]!r} once, got it beside metadata and in it: remove one",
                param=f"{where}{name[:80]}",
            )
    merged = {**more, **(value or {})} if more else value
    _check_canonical(merged, f"{where}metadata")
    return merged


def _check_canonical(value: Any, param: str) -> None:
    try:
        canonical(value)
    except RejectedError as error:
        raise refused(str(error), param=param) from error


def _references(body: Mapping[str, Any], rules: ReportRules, where: str) -> tuple[str, ...]:
    value = body.get("references")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > REFERENCES_MAX:
        got = f"{len(value)} of them" if isinstance(value, list) else kind_of(value)
        raise refused(
            f"expected a list of up to {REFERENCES_MAX} receipts, got {got}: correct it",
            param=f"{where}references",
        )
    references: dict[str, None] = {}
    for index, item in enumerate(value):
        reference = _reference(item, rules, f"{where}references[{index}]")
        if reference in references:
            raise refused(
                "expected each receipt once, got one again: remove it", param=f"{where}references[{index}]"
            )
        references[reference] = None
    return tuple(references)


def _reference(value: Any, rules: ReportRules, param: str) -> str:
    reference = identifier(value, param=param)
    if not reference.startswith(RECEIPT_PREFIX):
        return reference  # the client's own id of an imported call: whether it was, the index knows
    try:
        return verify_receipt(reference, rules.scenario, rules.receipt_keys)
    except RejectedError as error:
        raise refused(str(error), param=param, reason=error.reason) from error


def _check_schema(said: FeedbackSaid, schema: ReportSchema, where: str) -> None:
    if len(said.references) < schema.num_references_min:
        raise refused(
            f"expected references to at least {schema.num_references_min} calls, got {len(said.references)}: "
            "quote x-reef-agent-record-id of the answers",
            param=f"{where}references",
        )
    if schema.is_score_required and said.score is None:
        raise refused("expected a score, which this recipe needs, got none: add it", param=f"{where}score")
    for name in schema.required_metadata:
        if (said.metadata or {}).get(name) is None:
            raise refused(
                f"expected metadata.{name}, which this recipe needs, got none: add it",
                param=f"{where}metadata.{name}",
            )


def _json(value: Any) -> JsonBytes | None:
    return None if value is None else JsonBytes(canonical(value))


def refused(message: str, *, param: str, reason: str = "bad_field") -> FieldError:
    """Refuse a field by its name as the client wrote it, in the message too."""
    return FieldError(f"{param}: {message}", param=param, reason=reason)
