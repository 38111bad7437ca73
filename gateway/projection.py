"""Pure: what each event changes in the views: calls, reports, outcomes, releases, the newest of some kinds.

Not a store: gateway/views.py runs the statements. Whatever is here can be read from the log again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from schemas.codec import decode
from schemas.errors import ReefError
from schemas.events import (
    CandidateEvaluated,
    CandidateTrained,
    Event,
    EventRejected,
    FeedbackReported,
    InferenceCompleted,
    ModelSwapped,
    OutcomeSettled,
    PromoteCandidate,
    ReleasePublished,
    ReportAccepted,
    RollBackRelease,
    ScenarioConfigured,
    SwapFailed,
    TrainingFailed,
)
from schemas.kinds import is_weights
from schemas.records import Record
from schemas.topics import (
    CANDIDATES,
    COMMANDS,
    INTERACTIONS,
    OUTCOMES,
    REJECTED,
    RELEASES,
    REPORT_IDS,
    SERVING,
)

CHAINS = (RELEASES, COMMANDS, SERVING, CANDIDATES, REJECTED)
"""Topics of which a few events a minute come, and which somebody waits for."""
TRAFFIC = (REPORT_IDS, OUTCOMES, INTERACTIONS)
"""Topics that grow with every call."""


class Statement(NamedTuple):
    """One change of the tables."""

    sql: str
    """With question marks."""
    values: Sequence[Any]
    """For each mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An event and where it stands."""

    record: Record
    """The record read."""
    event: Event
    """What it says."""


def rows_of(seen: Seen) -> tuple[Statement, ...]:
    """Say what an event changes; nothing for one that the views do not show."""
    make = _MAKERS.get(type(seen.event))
    return () if make is None else make(seen.record, seen.event)


def _call(record: Record, event: InferenceCompleted) -> tuple[Statement, ...]:
    return _one(
        "INSERT OR IGNORE INTO calls(receipt, scenario, partition, offset, facts, is_settled) "
        "VALUES(?1,?2,?3,?4,?5, EXISTS(SELECT 1 FROM outcomes WHERE receipt=?1))",
        (event.receipt, event.scenario, record.partition, record.offset, orjson.dumps(call_facts(event))),
    )


def call_facts(event: InferenceCompleted) -> Mapping[str, Any]:
    """Give what is shown of a call; no text of it."""
    return {
        "session": event.session,
        "tags": dict(event.tags),
        "release_id": event.release_id,
        "spans": [[span.release_seq, span.num_tokens] for span in event.weight_spans],
        "outcome": event.outcome,
        "imported_id": event.imported_id,
        "is_opted_out": event.is_opted_out,
        "capture_faults": list(event.capture_faults),
        "started_at_us": event.started_at_us,
        "completed_at_us": event.completed_at_us,
    }


def _reports(record: Record, event: FeedbackReported) -> tuple[Statement, ...]:
    return report_rows(event, record)


def report_rows(event: FeedbackReported, record: Record | None = None) -> tuple[Statement, ...]:
    """Show a report beside each call that it judges; without a record it is not in the log yet."""
    facts = orjson.dumps(report_facts(event))
    place = (None, None) if record is None else (record.partition, record.offset)
    return tuple(
        Statement(
            "INSERT INTO reports(scenario, report_id, receipt, partition, offset, facts) VALUES(?,?,?,?,?,?) "
            "ON CONFLICT(receipt, scenario, report_id) DO UPDATE SET partition=excluded.partition, "
            "offset=excluded.offset, refusal=NULL WHERE reports.offset IS NULL "
            "OR (reports.refusal IS NOT NULL AND excluded.offset > reports.offset)",
            (event.scenario, event.report_id, receipt, *place, facts),
        )
        for receipt in event.references
    )


def report_facts(event: FeedbackReported) -> Mapping[str, Any]:
    """Give what is shown of a report; no text of it."""
    return {
        "agent_record_id": event.report_id,
        "score": event.score,
        "has_feedback": event.feedback is not None,
        "supersedes": event.supersedes,
        "is_withdrawal": event.is_withdrawal,
        "reported_at_us": event.reported_at_us,
    }


def place_of(record: Record) -> Mapping[str, Any]:
    """Say where in the log an event stands."""
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}


def _outcome(record: Record, event: OutcomeSettled) -> tuple[Statement, ...]:
    facts = {
        "state": event.state,
        "reason": event.reason,
        "notes": list(event.notes),
        "experience_id": event.experience_id,
        "batch_id": event.batch_id,
        "candidate_id": event.candidate_id,
        "release_id": event.release_id,
        "settled_at_us": event.settled_at_us,
        "place": place_of(record),
    }
    return (
        Statement(
            "INSERT OR REPLACE INTO outcomes(receipt, scenario, state, reason, batch_id, facts) "
            "VALUES(?,?,?,?,?,?)",
            (event.receipt, event.scenario, event.state, event.reason, event.batch_id, orjson.dumps(facts)),
        ),
        Statement("UPDATE calls SET is_settled=1 WHERE receipt=?", (event.receipt,)),
    )


def report_id_row(event: ReportAccepted) -> Statement:
    """Remember that an id is taken; whoever came first keeps it."""
    facts = {"references": list(event.references), "accepted_at_us": event.accepted_at_us}
    return Statement(
        "INSERT OR IGNORE INTO report_ids(scenario, report_id, content_sha256, facts) VALUES(?,?,?,?)",
        (event.scenario, event.report_id, event.content_sha256, orjson.dumps(facts)),
    )


def _release(record: Record, event: ReleasePublished) -> tuple[Statement, ...]:
    facts = {
        "release_id": event.release_id,
        "release_seq": event.release_seq,
        "parent_release_id": event.parent_release_id,
        "operation": event.operation,
        "kind": event.kind,
        "content_sha256": event.content_sha256,
        "artifact_uri": event.artifact_uri,
        "candidate_id": event.candidate_id,
        "batch_ids": list(event.batch_ids),
        "rollback_target_release_id": event.rollback_target_release_id,
        "command_id": event.command_id,
        "tokenizer_digest": event.tokenizer_digest,
        "published_at_us": event.published_at_us,
        "place": place_of(record),
    }
    return _one(
        "INSERT OR IGNORE INTO releases(scenario, release_seq, release_id, facts) VALUES(?,?,?,?)",
        (event.scenario, event.release_seq, event.release_id, orjson.dumps(facts)),
    )


def _configured(_: Record, event: ScenarioConfigured) -> tuple[Statement, ...]:
    facts = {
        "recipe": event.recipe,
        "recipe_digest": event.recipe_digest,
        "options": event.options.decode(),
        "target": event.target,
        "is_retired": event.is_retired,
        "configured_at_us": event.configured_at_us,
    }
    return _latest(event.scenario, "configured", facts)


def _trained(record: Record, event: CandidateTrained) -> tuple[Statement, ...]:
    facts = {
        "candidate_id": event.candidate_id,
        "batch_id": event.batch_id,
        "batch_seq": event.batch_seq,
        "step": event.step,
        "metrics": dict(event.metrics),
        "trained_at_us": event.trained_at_us,
    }
    told = {
        "base_release_id": event.base_release_id,
        "is_publishable": event.is_publishable,
        "place": place_of(record),
    }
    training = Statement(
        "INSERT OR REPLACE INTO trainings(candidate_id, scenario, batch_id, metrics, facts) "
        "VALUES(?,?,?,?,?)",
        (
            event.candidate_id,
            event.scenario,
            event.batch_id,
            orjson.dumps(dict(event.metrics)),
            orjson.dumps(facts | told),
        ),
    )
    latest = _latest(event.scenario, "trained", facts) if is_weights(event.kind) else ()
    return (*latest, training)


def _training_failed(record: Record, event: TrainingFailed) -> tuple[Statement, ...]:
    facts = {"batch_id": event.batch_id, "reason": event.reason, "failed_at_us": event.failed_at_us}
    failure = Statement(
        "INSERT OR REPLACE INTO failures(batch_id, scenario, facts) VALUES(?,?,?)",
        (
            event.batch_id,
            event.scenario,
            orjson.dumps({**facts, "detail": event.detail, "place": place_of(record)}),
        ),
    )
    return (*_latest(event.scenario, "training_failed", facts), failure)


def _candidate(record: Record, event: CandidateEvaluated) -> tuple[Statement, ...]:
    facts = {
        "reasons": list(event.reasons),
        "metrics": dict(event.metrics),
        "batch_ids": list(event.batch_ids),
        "evaluated_at_us": event.evaluated_at_us,
        "place": place_of(record),
    }
    return _one(
        "INSERT OR REPLACE INTO candidates(candidate_id, scenario, verdict, facts) VALUES(?,?,?,?)",
        (event.candidate_id, event.scenario, event.verdict, orjson.dumps(facts)),
    )


def _swap_failed(_: Record, event: SwapFailed) -> tuple[Statement, ...]:
    facts = {
        "gateway_id": event.gateway_id,
        "reason": event.reason,
        "serving_release_id": event.serving_release_id,
        "failed_at_us": event.failed_at_us,
    }
    return _latest(event.scenario, "swap_failed", facts)


def _swapped(record: Record, event: ModelSwapped) -> tuple[Statement, ...]:
    facts = {
        "gateway_id": event.gateway_id,
        "release_id": event.release_id,
        "release_seq": event.release_seq,
        "pause_ms": event.pause_ms,
        "max_stream_gap_ms": event.max_stream_gap_ms,
        "total_ms": event.total_ms,
        "swapped_at_us": event.swapped_at_us,
    }
    swap = Statement(
        "INSERT OR REPLACE INTO swaps(release_id, swap_id, gateway_id, facts) VALUES(?,?,?,?)",
        (
            event.release_id,
            event.swap_id,
            event.gateway_id,
            orjson.dumps({**facts, "place": place_of(record)}),
        ),
    )
    return (*_latest(event.scenario, "swapped", facts), swap)


def _latest(scenario: str, name: str, facts: Mapping[str, Any]) -> tuple[Statement, ...]:
    return _one("INSERT OR REPLACE INTO latest VALUES(?,?,?)", (scenario, name, orjson.dumps(facts)))


def _one(sql: str, values: Sequence[Any]) -> tuple[Statement, ...]:
    return (Statement(sql, values),)


def _accepted(_: Record, event: ReportAccepted) -> tuple[Statement, ...]:
    return (report_id_row(event),)


def _command(_: Record, event: RollBackRelease | PromoteCandidate) -> tuple[Statement, ...]:
    return _one(
        "INSERT OR IGNORE INTO commands(command_id, requested_at_us) VALUES(?,?)",
        (event.command_id, event.requested_at_us),
    )


def _refused(_: Record, event: EventRejected) -> tuple[Statement, ...]:
    """Mark commands and reports that were refused; each may be read before what it refuses."""
    refusal = orjson.dumps({"reason": event.reason, "detail": event.detail})
    match _refused_event(event):
        case RollBackRelease() | PromoteCandidate() as command:
            return _one(
                "INSERT INTO commands(command_id, requested_at_us, refusal) VALUES(?,?,?) "
                "ON CONFLICT(command_id) DO UPDATE SET refusal=excluded.refusal",
                (command.command_id, command.requested_at_us, refusal),
            )
        case FeedbackReported() as report if event.source_offset >= 0:
            return _refused_report(event, report, refusal)
    return ()


def _refused_report(event: EventRejected, report: FeedbackReported, refusal: bytes) -> tuple[Statement, ...]:
    """Mark the one that stands there: another of the same name may have been taken."""
    facts = orjson.dumps(report_facts(report))
    place = (event.source_partition, event.source_offset)
    return tuple(
        Statement(
            "INSERT INTO reports(scenario, report_id, receipt, partition, offset, facts, refusal) "
            "VALUES(?,?,?,?,?,?,?) ON CONFLICT(receipt, scenario, report_id) DO UPDATE SET "
            "partition=excluded.partition, offset=excluded.offset, refusal=excluded.refusal "
            "WHERE reports.offset IS NULL OR reports.offset=excluded.offset",
            (report.scenario, report.report_id, receipt, *place, facts, refusal),
        )
        for receipt in report.references
    )


def _refused_event(event: EventRejected) -> Event | None:
    if event.source_topic not in (COMMANDS, INTERACTIONS) or event.value is None:
        return None
    try:
        return decode(event.value)
    except ReefError:
        return None


_MAKERS: Mapping[type[Event], Callable[[Record, Any], tuple[Statement, ...]]] = {
    InferenceCompleted: _call,
    FeedbackReported: _reports,
    OutcomeSettled: _outcome,
    ReportAccepted: _accepted,
    ReleasePublished: _release,
    ScenarioConfigured: _configured,
    CandidateTrained: _trained,
    TrainingFailed: _training_failed,
    CandidateEvaluated: _candidate,
    ModelSwapped: _swapped,
    SwapFailed: _swap_failed,
    RollBackRelease: _command,
    PromoteCandidate: _command,
    EventRejected: _refused,
}
