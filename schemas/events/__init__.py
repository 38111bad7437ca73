"""Pure: the language of the system: every fact and command that crosses between services, one file a topic.

Next: schemas/events/interactions.py
"""

from schemas.events.candidates import ArtifactKind, CandidateTrained, OptimizerState, TrainingFailed
from schemas.events.commands import PromoteCandidate, RollBackRelease, ScenarioConfigured, TrainingTarget
from schemas.events.experience import (
    BatchSettled,
    BatchState,
    ExperienceAssembled,
    ExperienceRevised,
    ExperienceWithdrawn,
    ReleaseAdvanced,
    Source,
)
from schemas.events.interactions import (
    Api,
    CallOutcome,
    CaptureFault,
    Choice,
    ClockTicked,
    ErasureRequested,
    FeedbackReported,
    FeedbackSource,
    InferenceCompleted,
    Sampling,
    SamplingConstraint,
    Usage,
    WeightSpan,
)
from schemas.events.outcomes import OutcomeReason, OutcomeSettled, OutcomeState
from schemas.events.refusals import EventRejected, Header
from schemas.events.releases import (
    CandidateEvaluated,
    Operation,
    ReleasePublished,
    SwapRequested,
    Verdict,
    VerdictReason,
)
from schemas.events.report_ids import ReportAccepted
from schemas.events.serving import ModelSwapped, SwapFailed, SwapFailure
from schemas.events.training import BatchSealed, TrainingSample

Event = (
    InferenceCompleted
    | FeedbackReported
    | ErasureRequested
    | ScenarioConfigured
    | ClockTicked
    | ExperienceAssembled
    | ExperienceRevised
    | ExperienceWithdrawn
    | ReleaseAdvanced
    | BatchSettled
    | TrainingSample
    | BatchSealed
    | CandidateTrained
    | TrainingFailed
    | CandidateEvaluated
    | ReleasePublished
    | SwapRequested
    | ModelSwapped
    | SwapFailed
    | RollBackRelease
    | PromoteCandidate
    | OutcomeSettled
    | ReportAccepted
    | EventRejected
)
"""Any event. Each has one `.avsc` a version in schemas/avro/."""

EVENT_TYPES: tuple[type[Event], ...] = Event.__args__
"""Every event type, in the order of the topics."""

__all__ = [
    "EVENT_TYPES",
    "Api",
    "ArtifactKind",
    "BatchSealed",
    "BatchSettled",
    "BatchState",
    "CallOutcome",
    "CandidateEvaluated",
    "CandidateTrained",
    "CaptureFault",
    "Choice",
    "ClockTicked",
    "ErasureRequested",
    "Event",
    "EventRejected",
    "ExperienceAssembled",
    "ExperienceRevised",
    "ExperienceWithdrawn",
    "FeedbackReported",
    "FeedbackSource",
    "Header",
    "InferenceCompleted",
    "ModelSwapped",
    "Operation",
    "OptimizerState",
    "OutcomeReason",
    "OutcomeSettled",
    "OutcomeState",
    "PromoteCandidate",
    "ReleaseAdvanced",
    "ReleasePublished",
    "ReportAccepted",
    "RollBackRelease",
    "Sampling",
    "SamplingConstraint",
    "ScenarioConfigured",
    "Source",
    "SwapFailed",
    "SwapFailure",
    "SwapRequested",
    "TrainingFailed",
    "TrainingSample",
    "TrainingTarget",
    "Usage",
    "Verdict",
    "VerdictReason",
    "WeightSpan",
]
