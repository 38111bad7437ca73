"""Pure: feedback as a Kafka record, for producers that do not ask the gateway: docs/kafka.md in Python.

Not a producer: send key and value with any client that partitions by murmur2, as Java's does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.canonical import canonical, canonical_sha256
from schemas.codec import encode
from schemas.errors import RejectedError
from schemas.events import FeedbackReported, FeedbackSource
from schemas.ids import (
    RECEIPT_PREFIX,
    Receipt,
    ReportId,
    Route,
    ScenarioName,
    Sha256,
    route_of,
    route_of_import,
    scenario_name,
)
from schemas.packed import JsonBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackSaid:
    """What somebody says of one or more answers."""

    references: Sequence[str]
    """Receipts of the answers, each once; or the ids of imported calls."""
    score: float | None = None
    """Finite."""
    feedback: str | Mapping[str, Any] | None = None
    """Text or an object."""
    metadata: Mapping[str, Any] | None = None
    """What the recipe reads beside the score."""
    supersedes: str | None = None
    """An earlier report that this one replaces."""
    is_withdrawal: bool = False
    """Take the superseded report back and put nothing in its place."""


def feedback_record(
    said: FeedbackSaid, *, scenario: str, report_id: str, reported_at_us: int
) -> tuple[bytes, bytes]:
    """Give key and value of the one record of a report whose answers share a route.

    Raises RejectedError, also when the answers are of several routes: then use `feedback_records`.
    """
    records = feedback_records(said, scenario=scenario, report_id=report_id, reported_at_us=reported_at_us)
    if len(records) > 1:
        raise RejectedError(
            f"expected answers of one route, got {len(records)} routes: write all of feedback_records()",
            reason="route_mismatch",
        )
    return records[0]


def feedback_records(
    said: FeedbackSaid, *, scenario: str, report_id: str, reported_at_us: int
) -> tuple[tuple[bytes, bytes], ...]:
    """Give key and value of each record of a report, one for each route. Raises RejectedError."""
    _check(said, report_id)
    name = scenario_name(scenario)
    routes: dict[Route, list[Receipt]] = {}
    for reference in said.references:
        routes.setdefault(route_of_reference(name, reference), []).append(Receipt(reference))
    return tuple(
        (
            route.encode(),
            encode(
                FeedbackReported(
                    report_id=ReportId(report_id),
                    scenario=name,
                    route=route,
                    references=tuple(references),
                    part=part,
                    num_parts=len(routes),
                    score=said.score,
                    feedback=_json(said.feedback),
                    metadata=_json(said.metadata),
                    supersedes=None if said.supersedes is None else ReportId(said.supersedes),
                    is_withdrawal=said.is_withdrawal,
                    content_sha256=content_sha256(said),
                    source=FeedbackSource.KAFKA,
                    reported_at_us=reported_at_us,
                )
            ),
        )
        for part, (route, references) in enumerate(routes.items())
    )


def route_of_reference(scenario: ScenarioName, reference: str) -> Route:
    """Give the route of a call by its receipt, or by the client's own id if it was imported."""
    if reference.startswith(RECEIPT_PREFIX):
        return route_of(Receipt(reference))
    return route_of_import(scenario, reference)


def content_sha256(said: FeedbackSaid) -> Sha256:
    """Digest the whole report in canonical JSON, what it leaves out left out. Readers do not rely on it."""
    content = {
        "references": list(said.references),
        "score": said.score,
        "feedback": said.feedback,
        "metadata": said.metadata,
        "supersedes": said.supersedes,
        "withdraw": said.is_withdrawal or None,
    }
    return canonical_sha256({name: value for name, value in content.items() if value is not None})


def _check(said: FeedbackSaid, report_id: str) -> None:
    problem = None
    if not report_id.strip():
        problem = "expected a report id, got a blank one"
    elif not said.references or len(set(said.references)) < len(said.references):
        problem = f"expected one reference or more, each once, got {len(said.references)}"
    elif said.is_withdrawal and said.supersedes is None:
        problem = "expected a withdrawal to name the report it takes back, got none"
    if problem is not None:
        raise RejectedError(f"{problem}: correct the report", reason="bad_report")


def _json(value: str | Mapping[str, Any] | None) -> JsonBytes | None:
    return None if value is None else JsonBytes(canonical(value))
