"""Pure: every topic, where services meet: what lives in it, by which key, for how long.

Not the creation of topics: that is schemas/topic_admin.py.

Next: schemas/partitions.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from schemas.events import (
    BatchSealed,
    BatchSettled,
    CandidateEvaluated,
    CandidateTrained,
    ClockTicked,
    ErasureRequested,
    Event,
    EventRejected,
    ExperienceAssembled,
    ExperienceRevised,
    ExperienceWithdrawn,
    FeedbackReported,
    InferenceCompleted,
    ModelSwapped,
    OutcomeSettled,
    PromoteCandidate,
    ReleaseAdvanced,
    ReleasePublished,
    ReportAccepted,
    RollBackRelease,
    ScenarioConfigured,
    SwapFailed,
    SwapRequested,
    TrainingFailed,
    TrainingSample,
)

INTERACTIONS = "reef.interactions.v1"
EXPERIENCE = "reef.experience.v1"
TRAINING = "reef.training.v1"
CANDIDATES = "reef.candidates.v1"
RELEASES = "reef.releases.v1"
SERVING = "reef.serving.v1"
COMMANDS = "reef.commands.v1"
OUTCOMES = "reef.outcomes.v1"
SESSION_STATE = "reef.session-state.v1"
BATCH_STATE = "reef.batch-state.v1"
RELAY_STATE = "reef.relay-state.v1"
SCHEMAS_LOG = "reef.schemas.v1"
REPORT_IDS = "reef.report-ids.v1"
REJECTED = "reef.rejected.v1"

NUM_PARTITIONS_DEFAULT = 8
RETENTION_DAYS_DEFAULT = 14
BATCH_BYTES_MAX = 1_048_588
"""`max.message.bytes`: a claim-checked record, or a batch of small ones, stays below it."""
RECORD_BYTES_MAX = 1_000_000
"""What one record may have; beyond 256 KB large fields are claim-checked away."""

FOREVER_MS = -1
_DAY_MS = 24 * 60 * 60 * 1000
_TRAINING_DAYS, _INDEX_DAYS, _REJECTED_DAYS = 30, 90, 90


class Cleanup(StrEnum):
    """What the broker removes from a topic."""

    DELETE = "delete"
    """What is older than the retention."""
    COMPACT = "compact"
    """All but the latest record of a key."""
    COMPACT_DELETE = "compact,delete"
    """Both."""


class TimestampType(StrEnum):
    """Whose clock a record's time is."""

    CREATE_TIME = "CreateTime"
    """The producer's."""
    LOG_APPEND_TIME = "LogAppendTime"
    """The broker's: a stranger's clock expires nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One topic, as it must be on the cluster."""

    name: str
    """Its name, with the version of its contract."""
    events: tuple[type[Event], ...]
    """Which events live in it; empty when it holds other bytes."""
    key: str
    """The record's key, in words."""
    cleanup: Cleanup
    """`cleanup.policy`."""
    retention_ms: int
    """`retention.ms`; -1 keeps records for ever."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    """`message.timestamp.type`."""
    num_partitions: int | None = None
    """Fixed by the contract; None when the deployment chooses, once for all topics."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further broker settings."""

    def config(self) -> dict[str, str]:
        """Give the settings with which the topic is created."""
        return {
            "cleanup.policy": self.cleanup,
            "retention.ms": str(self.retention_ms),
            "message.timestamp.type": self.timestamp_type,
            "max.message.bytes": str(BATCH_BYTES_MAX),
            **self.extra,
        }


_DAILY_SEGMENTS = MappingProxyType({"segment.ms": str(_DAY_MS)})
"""So that what is past its retention is gone a day later, not a week."""
_STATE_SEGMENTS = MappingProxyType(
    {
        "segment.bytes": str(64 * 1024 * 1024),
        "segment.ms": str(10 * 60 * 1000),
        "min.cleanable.dirty.ratio": "0.1",
    }
)
"""Often compacted, since a worker that opens a partition reads its state to the end (STREAMS 7)."""


def topic_table(retention_days: int = RETENTION_DAYS_DEFAULT) -> Mapping[str, TopicSpec]:
    """Give all topics by name; `retention_days` is that of interactions and experience."""
    specs = (*_conversation_topics(retention_days * _DAY_MS), *_decision_topics(), *_service_topics())
    return MappingProxyType({spec.name: spec for spec in specs})


def _conversation_topics(retention_ms: int) -> tuple[TopicSpec, ...]:
    return (
        TopicSpec(
            name=INTERACTIONS,
            events=(InferenceCompleted, FeedbackReported, ErasureRequested, ScenarioConfigured, ClockTicked),
            key="route",
            cleanup=Cleanup.DELETE,
            retention_ms=retention_ms,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            extra=_DAILY_SEGMENTS,
        ),
        TopicSpec(
            name=EXPERIENCE,
            events=(
                ExperienceAssembled,
                ExperienceRevised,
                ExperienceWithdrawn,
                ReleaseAdvanced,
                BatchSettled,
                ScenarioConfigured,
                ErasureRequested,
                ClockTicked,
            ),
            key="scenario",
            cleanup=Cleanup.DELETE,
            retention_ms=retention_ms,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            extra=_DAILY_SEGMENTS,
        ),
        _delete(TRAINING, (TrainingSample, BatchSealed), "scenario", _TRAINING_DAYS * _DAY_MS),
    )


def _decision_topics() -> tuple[TopicSpec, ...]:
    return (
        _delete(CANDIDATES, (CandidateTrained, TrainingFailed), "scenario", FOREVER_MS),
        _delete(RELEASES, (CandidateEvaluated, ReleasePublished, SwapRequested), "scenario", FOREVER_MS),
        _delete(SERVING, (ModelSwapped, SwapFailed), "scenario", FOREVER_MS),
        _delete(COMMANDS, (ScenarioConfigured, RollBackRelease, PromoteCandidate), "scenario", FOREVER_MS),
    )


def _service_topics() -> tuple[TopicSpec, ...]:
    return (
        _index(OUTCOMES, (OutcomeSettled,), "receipt"),
        _index(REPORT_IDS, (ReportAccepted,), "scenario/report id"),
        _delete(REJECTED, (EventRejected,), "source key", _REJECTED_DAYS * _DAY_MS),
        _state(SESSION_STATE),
        _state(BATCH_STATE),
        _state(RELAY_STATE),
        TopicSpec(
            name=SCHEMAS_LOG,
            events=(),
            key="fingerprint",
            cleanup=Cleanup.COMPACT,
            retention_ms=FOREVER_MS,
            num_partitions=1,  # read whole by whoever meets a schema he does not know
        ),
    )


def _delete(name: str, events: tuple[type[Event], ...], key: str, retention_ms: int) -> TopicSpec:
    return TopicSpec(name=name, events=events, key=key, cleanup=Cleanup.DELETE, retention_ms=retention_ms)


def _index(name: str, events: tuple[type[Event], ...], key: str) -> TopicSpec:
    return TopicSpec(
        name=name,
        events=events,
        key=key,
        cleanup=Cleanup.COMPACT_DELETE,
        retention_ms=_INDEX_DAYS * _DAY_MS,
    )


def _state(name: str) -> TopicSpec:
    return TopicSpec(
        name=name,
        events=(),
        key="state key",
        cleanup=Cleanup.COMPACT,
        retention_ms=FOREVER_MS,
        extra=_STATE_SEGMENTS,
    )


TOPICS = topic_table()
"""All topics by name, with the default retention."""

_FIRST_WRITTEN_TO: Mapping[type[Event], str] = MappingProxyType(
    {event_type: spec.name for spec in TOPICS.values() for event_type in spec.events}
    | {ScenarioConfigured: COMMANDS, ErasureRequested: INTERACTIONS, ClockTicked: INTERACTIONS}
)

_TO_A_PARTITION = frozenset(
    {
        (INTERACTIONS, ErasureRequested),
        (INTERACTIONS, ScenarioConfigured),
        (INTERACTIONS, ClockTicked),
        (EXPERIENCE, ClockTicked),
    }
)


def topic_of(event_type: type[Event]) -> str:
    """Name the topic that an event of this type is first written to; some are copied on to others."""
    return _FIRST_WRITTEN_TO[event_type]


def is_by_key(event_type: type[Event], topic: str) -> bool:
    """Whether the key chooses the partition; if not the writer names it, and often writes to all of them."""
    return (topic, event_type) not in _TO_A_PARTITION


def key_of(event: Event) -> bytes:
    """Give the key that puts what must be joined into one partition."""
    match event:
        case InferenceCompleted() | FeedbackReported():
            key = event.route.encode()
        case OutcomeSettled():
            key = event.receipt.encode()
        case ReportAccepted():
            key = f"{event.scenario}/{event.report_id}".encode()
        case EventRejected():
            key = event.key or b""
        case ClockTicked():
            key = b""
        case _:
            key = event.scenario.encode()
    return key
