"""Pure: one valid event of each type, the same at every call, with whatever a test names changed.

Numbers are packed here with numpy; the gateway has a faster way of its own (gateway/capture.py).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from schemas.events import (
    Api,
    ArtifactKind,
    BatchSealed,
    BatchSettled,
    BatchState,
    CallOutcome,
    CandidateEvaluated,
    CandidateTrained,
    Choice,
    ClockTicked,
    ErasureRequested,
    Event,
    EventRejected,
    ExperienceAssembled,
    ExperienceRevised,
    ExperienceWithdrawn,
    FeedbackReported,
    FeedbackSource,
    Header,
    InferenceCompleted,
    ModelSwapped,
    Operation,
    OptimizerState,
    OutcomeReason,
    OutcomeSettled,
    OutcomeState,
    PromoteCandidate,
    ReleaseAdvanced,
    ReleasePublished,
    ReportAccepted,
    RollBackRelease,
    Sampling,
    ScenarioConfigured,
    Source,
    SwapFailed,
    SwapFailure,
    SwapRequested,
    TrainingFailed,
    TrainingSample,
    TrainingTarget,
    Usage,
    Verdict,
    WeightSpan,
)
from schemas.ids import (
    BatchId,
    CandidateId,
    CommandId,
    ExperienceId,
    GatewayId,
    Receipt,
    ReleaseId,
    ReportId,
    Route,
    ScenarioName,
    Session,
    Sha256,
    SwapId,
    derived_id,
    mint_receipt,
    route_of_session,
)
from schemas.packed import JsonBytes, Logprobs, Mask, OriginalBytes, Temperatures, TokenIds

SCENARIO = ScenarioName("capitals")
SESSION = Session("s-1")
ROUTE: Route = route_of_session(SCENARIO, SESSION)
RECEIPT_KEY = b"a key of the tests, 32 bytes...."
TIME_US = 1_790_000_000_000_000
SHA256 = Sha256("5d" * 32)
BASE_RELEASE_ID = ReleaseId("c0" * 32)
RELEASE_ID = ReleaseId("c1" * 32)
EXPERIENCE_ID = ExperienceId(derived_id("experience", "1"))
BATCH_ID = BatchId(derived_id("batch", "1"))
CANDIDATE_ID = CandidateId(derived_id("candidate", "1"))
SWAP_ID = SwapId(derived_id("swap", "1"))


def a_receipt(number: int = 1, *, scenario: ScenarioName = SCENARIO, route: Route = ROUTE) -> Receipt:
    """Name call `number`; receipts of rising numbers sort in their order."""
    return mint_receipt(
        scenario,
        route,
        time_ms=TIME_US // 1_000 + number,
        nonce=number.to_bytes(6, "big"),
        key=RECEIPT_KEY,
    )


def pack_tokens(token_ids: Iterable[int]) -> TokenIds:
    """Pack ids of shape [token]. Raises OverflowError beyond 32 bits."""
    return TokenIds(np.array(list(token_ids), dtype="<u4").tobytes())


def pack_logprobs(logprobs: Iterable[float]) -> Logprobs:
    """Pack logprobs of shape [token]."""
    return Logprobs(np.array(list(logprobs), dtype="<f4").tobytes())


def pack_temperatures(temperatures: Iterable[float]) -> Temperatures:
    """Pack temperatures of shape [token]."""
    return Temperatures(np.array(list(temperatures), dtype="<f4").tobytes())


def pack_mask(mask: Iterable[int]) -> Mask:
    """Pack a mask of zeros and ones of shape [token]."""
    return Mask(bytes(mask))


def a_choice(**changes: Any) -> Choice:
    """Build one answer of three tokens."""
    fields: dict[str, Any] = {
        "index": 0,
        "token_ids": pack_tokens([504, 3575, 30]),
        "logprobs": pack_logprobs([-0.5, -0.25, -2.0]),
        "finish_reason": "stop",
    }
    return Choice(**(fields | changes))


def a_sampling(**changes: Any) -> Sampling:
    """Build the defaults: temperature 1, nothing truncated."""
    fields: dict[str, Any] = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": None,
        "constraints": (),
    }
    return Sampling(**(fields | changes))


def an_inference_completed(**changes: Any) -> InferenceCompleted:
    """Build a chat of four prompt tokens and three generated ones."""
    fields: dict[str, Any] = {
        "receipt": a_receipt(),
        "scenario": SCENARIO,
        "route": ROUTE,
        "session": SESSION,
        "api": Api.CHAT,
        "model": "reef",
        "outcome": CallOutcome.COMPLETED,
        "request": JsonBytes(b'{"messages":[{"role":"user","content":"Capital of France?"}]}'),
        "response": JsonBytes(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Paris."}}]}'),
        "prompt_token_ids": pack_tokens([1, 2, 3, 4]),
        "choices": (a_choice(),),
        "sampling": a_sampling(),
        "usage": Usage(prompt=4, completion=3),
        "logprobs_mode": "processed_logprobs",
        "request_id": "req-1",
        "tokenizer_digest": SHA256,
        "chat_template_digest": SHA256,
        "release_id": BASE_RELEASE_ID,
        "weight_spans": (WeightSpan(release_seq=0, num_tokens=3),),
        "tags": {"team": "atlas"},
        "capture_faults": (),
        "is_opted_out": False,
        "imported_id": None,
        "started_at_us": TIME_US,
        "completed_at_us": TIME_US + 250_000,
    }
    return InferenceCompleted(**(fields | changes))


def a_feedback_reported(**changes: Any) -> FeedbackReported:
    """Build a score of 1 for call 1."""
    fields: dict[str, Any] = {
        "report_id": ReportId("report-1"),
        "scenario": SCENARIO,
        "route": ROUTE,
        "references": (a_receipt(),),
        "part": 0,
        "num_parts": 1,
        "score": 1.0,
        "feedback": None,
        "metadata": None,
        "supersedes": None,
        "is_withdrawal": False,
        "content_sha256": SHA256,
        "source": FeedbackSource.HTTP,
        "reported_at_us": TIME_US + 1_000_000,
    }
    return FeedbackReported(**(fields | changes))


def an_erasure_requested(**changes: Any) -> ErasureRequested:
    """Build a request to forget call 1."""
    fields: dict[str, Any] = {
        "scenario": SCENARIO,
        "session": None,
        "receipts": (a_receipt(),),
        "requested_at_us": TIME_US,
    }
    return ErasureRequested(**(fields | changes))


def a_scenario_configured(**changes: Any) -> ScenarioConfigured:
    """Build a scenario that trains an adapter."""
    fields: dict[str, Any] = {
        "scenario": SCENARIO,
        "recipe": "recipes.sao.recipe:SAORecipe",
        "recipe_digest": SHA256,
        "options": JsonBytes(b'{"recipe":{},"streams":{}}'),
        "target": TrainingTarget.LORA,
        "is_retired": False,
        "configured_at_us": TIME_US,
    }
    return ScenarioConfigured(**(fields | changes))


def a_clock_ticked() -> ClockTicked:
    """Build a tick."""
    return ClockTicked()


def an_experience_assembled(**changes: Any) -> ExperienceAssembled:
    """Build four prompt tokens, three trained ones, and a reward of 1."""
    fields: dict[str, Any] = {
        "experience_id": EXPERIENCE_ID,
        "scenario": SCENARIO,
        "session": SESSION,
        "token_ids": pack_tokens([1, 2, 3, 4, 504, 3575, 30]),
        "loss_mask": pack_mask([0, 0, 0, 0, 1, 1, 1]),
        "logprobs": pack_logprobs([0.0, 0.0, 0.0, 0.0, -0.5, -0.25, -2.0]),
        "temperatures": pack_temperatures([1.0] * 7),
        "num_prompt_tokens": 4,
        "num_realigned_tokens": 0,
        "reward": 1.0,
        "feedback": None,
        "release_seq_first": 0,
        "release_seq_last": 0,
        "receipts": (a_receipt(),),
        "report_ids": (ReportId("report-1"),),
        "group": None,
        "source": Source(partition=0, offset=1, index=0),
        "tokenizer_digest": SHA256,
        "assembled_at_us": TIME_US + 1_000_000,
    }
    return ExperienceAssembled(**(fields | changes))


def an_experience_revised(**changes: Any) -> ExperienceRevised:
    """Build a correction to a reward of 0."""
    fields: dict[str, Any] = {
        "experience_id": EXPERIENCE_ID,
        "scenario": SCENARIO,
        "receipts": (a_receipt(),),
        "reward": 0.0,
        "feedback": None,
        "report_id": ReportId("report-2"),
        "revised_at_us": TIME_US + 2_000_000,
    }
    return ExperienceRevised(**(fields | changes))


def an_experience_withdrawn(**changes: Any) -> ExperienceWithdrawn:
    """Build a withdrawal of the experience."""
    fields: dict[str, Any] = {
        "experience_id": EXPERIENCE_ID,
        "scenario": SCENARIO,
        "receipts": (a_receipt(),),
        "report_id": ReportId("report-3"),
        "withdrawn_at_us": TIME_US + 3_000_000,
    }
    return ExperienceWithdrawn(**(fields | changes))


def a_release_advanced(**changes: Any) -> ReleaseAdvanced:
    """Build the move of the head to release 1."""
    fields: dict[str, Any] = {
        "scenario": SCENARIO,
        "release_id": RELEASE_ID,
        "release_seq": 1,
        "operation": Operation.TRAINING,
        "candidate_id": CANDIDATE_ID,
        "artifact_uri": f"lakefs://reef-{SCENARIO}/{RELEASE_ID}/",
        "content_sha256": SHA256,
        "tokenizer_digest": SHA256,
        "advanced_at_us": TIME_US + 4_000_000,
    }
    return ReleaseAdvanced(**(fields | changes))


def a_batch_settled(**changes: Any) -> BatchSettled:
    """Build the end of a batch that was published."""
    fields: dict[str, Any] = {
        "scenario": SCENARIO,
        "batch_id": BATCH_ID,
        "state": BatchState.TRAINED,
        "candidate_id": CANDIDATE_ID,
        "release_id": RELEASE_ID,
        "settled_at_us": TIME_US + 4_000_000,
    }
    return BatchSettled(**(fields | changes))


def a_training_sample(**changes: Any) -> TrainingSample:
    """Build the first sample of a batch."""
    fields: dict[str, Any] = {
        "batch_id": BATCH_ID,
        "scenario": SCENARIO,
        "index": 0,
        "experience": an_experience_assembled(),
    }
    return TrainingSample(**(fields | changes))


def a_batch_sealed(**changes: Any) -> BatchSealed:
    """Build the seal of a batch of one, based on release 0."""
    fields: dict[str, Any] = {
        "batch_id": BATCH_ID,
        "scenario": SCENARIO,
        "batch_seq": 0,
        "recipe": "recipes.sao.recipe:SAORecipe",
        "recipe_digest": SHA256,
        "base_release_id": BASE_RELEASE_ID,
        "base_release_seq": 0,
        "base_candidate_id": None,
        "base_artifact_uri": "file:///models/base/",
        "base_content_sha256": SHA256,
        "experience_ids": (EXPERIENCE_ID,),
        "content_sha256": SHA256,
        "sealed_at_us": TIME_US + 2_000_000,
    }
    return BatchSealed(**(fields | changes))


def a_candidate_trained(**changes: Any) -> CandidateTrained:
    """Build a publishable adapter."""
    fields: dict[str, Any] = {
        "candidate_id": CANDIDATE_ID,
        "scenario": SCENARIO,
        "batch_id": BATCH_ID,
        "batch_seq": 0,
        "kind": ArtifactKind.LORA,
        "base_release_id": BASE_RELEASE_ID,
        "artifact_uri": "file:///exports/1/",
        "manifest_sha256": SHA256,
        "step": 1,
        "metrics": {"grad_norm": 0.5, "loss": -0.25},
        "optimizer": OptimizerState.KEPT,
        "is_publishable": True,
        "trained_at_us": TIME_US + 3_000_000,
    }
    return CandidateTrained(**(fields | changes))


def a_training_failed(**changes: Any) -> TrainingFailed:
    """Build a batch whose loss was not finite."""
    fields: dict[str, Any] = {
        "batch_id": BATCH_ID,
        "scenario": SCENARIO,
        "reason": "non_finite",
        "detail": "expected a finite loss, got nan: lower the learning rate",
        "failed_at_us": TIME_US + 3_000_000,
    }
    return TrainingFailed(**(fields | changes))


def a_candidate_evaluated(**changes: Any) -> CandidateEvaluated:
    """Build an accepted candidate."""
    fields: dict[str, Any] = {
        "candidate_id": CANDIDATE_ID,
        "scenario": SCENARIO,
        "batch_ids": (BATCH_ID,),
        "verdict": Verdict.ACCEPTED,
        "reasons": (),
        "metrics": {"score": 0.75},
        "baseline_metrics": {"score": 0.5},
        "evaluated_at_us": TIME_US + 4_000_000,
    }
    return CandidateEvaluated(**(fields | changes))


def a_release_published(**changes: Any) -> ReleasePublished:
    """Build release 1."""
    fields: dict[str, Any] = {
        "release_id": RELEASE_ID,
        "scenario": SCENARIO,
        "release_seq": 1,
        "operation": Operation.TRAINING,
        "parent_release_id": BASE_RELEASE_ID,
        "content_sha256": SHA256,
        "artifact_uri": f"lakefs://reef-{SCENARIO}/{RELEASE_ID}/",
        "kind": ArtifactKind.LORA,
        "candidate_id": CANDIDATE_ID,
        "batch_ids": (BATCH_ID,),
        "rollback_target_release_id": None,
        "command_id": CommandId("cmd-1"),
        "tokenizer_digest": SHA256,
        "published_at_us": TIME_US + 4_000_000,
    }
    return ReleasePublished(**(fields | changes))


def a_swap_requested(**changes: Any) -> SwapRequested:
    """Build the request to serve release 1."""
    fields: dict[str, Any] = {
        "swap_id": SWAP_ID,
        "scenario": SCENARIO,
        "swap_seq": 1,
        "release_id": RELEASE_ID,
        "release_seq": 1,
        "kind": ArtifactKind.LORA,
        "artifact_uri": f"lakefs://reef-{SCENARIO}/{RELEASE_ID}/",
        "content_sha256": SHA256,
        "requested_at_us": TIME_US + 4_000_000,
    }
    return SwapRequested(**(fields | changes))


def a_model_swapped(**changes: Any) -> ModelSwapped:
    """Build a swap of half a second."""
    fields: dict[str, Any] = {
        "swap_id": SWAP_ID,
        "scenario": SCENARIO,
        "release_id": RELEASE_ID,
        "release_seq": 1,
        "gateway_id": GatewayId("gateway-1"),
        "engine": "http://127.0.0.1:8001",
        "num_bytes": 269_000_000,
        "stage_ms": 400.0,
        "pause_ms": 50.0,
        "max_stream_gap_ms": 75.0,
        "total_ms": 500.0,
        "swapped_at_us": TIME_US + 5_000_000,
    }
    return ModelSwapped(**(fields | changes))


def a_swap_failed(**changes: Any) -> SwapFailed:
    """Build a swap whose sender died."""
    fields: dict[str, Any] = {
        "swap_id": SWAP_ID,
        "scenario": SCENARIO,
        "reason": SwapFailure.SENDER_FAILED,
        "detail": "expected the sender to finish, got exit code -9: it is tried again",
        "serving_release_id": BASE_RELEASE_ID,
        "gateway_id": GatewayId("gateway-1"),
        "failed_at_us": TIME_US + 5_000_000,
    }
    return SwapFailed(**(fields | changes))


def a_roll_back_release(**changes: Any) -> RollBackRelease:
    """Build the command to bring release 0 back."""
    fields: dict[str, Any] = {
        "command_id": CommandId("command-1"),
        "scenario": SCENARIO,
        "target_release_id": BASE_RELEASE_ID,
        "expected_head_release_id": RELEASE_ID,
        "requested_at_us": TIME_US + 6_000_000,
    }
    return RollBackRelease(**(fields | changes))


def a_promote_candidate(**changes: Any) -> PromoteCandidate:
    """Build the command to publish a held candidate."""
    fields: dict[str, Any] = {
        "command_id": CommandId("command-2"),
        "scenario": SCENARIO,
        "candidate_id": CANDIDATE_ID,
        "expected_head_release_id": None,
        "requested_at_us": TIME_US + 6_000_000,
    }
    return PromoteCandidate(**(fields | changes))


def an_outcome_settled(**changes: Any) -> OutcomeSettled:
    """Build the outcome of a call without feedback."""
    fields: dict[str, Any] = {
        "receipt": a_receipt(),
        "scenario": SCENARIO,
        "state": OutcomeState.DROPPED,
        "reason": OutcomeReason.NO_FEEDBACK,
        "notes": (),
        "experience_id": None,
        "batch_id": None,
        "candidate_id": None,
        "release_id": None,
        "settled_at_us": TIME_US + 7_000_000,
    }
    return OutcomeSettled(**(fields | changes))


def a_report_accepted(**changes: Any) -> ReportAccepted:
    """Build the index entry of a report on call 1."""
    fields: dict[str, Any] = {
        "scenario": SCENARIO,
        "report_id": ReportId("report-1"),
        "content_sha256": SHA256,
        "references": (a_receipt(),),
        "accepted_at_us": TIME_US + 1_000_000,
    }
    return ReportAccepted(**(fields | changes))


def an_event_rejected(**changes: Any) -> EventRejected:
    """Build the refusal of bytes that are no event."""
    fields: dict[str, Any] = {
        "event_id": derived_id("rejected", "reef.interactions.v1", "0", "7"),
        "stage": "codec",
        "reason": "unknown_fingerprint",
        "detail": "expected the fingerprint of a known schema, got 0102030405060708",
        "source_topic": "reef.interactions.v1",
        "source_partition": 0,
        "source_offset": 7,
        "key": None,
        "value": OriginalBytes(b"\xc3\x01\x01\x02\x03\x04\x05\x06\x07\x08"),
        "headers": (Header(name="trace", value=b"\x00\xff"), Header(name="empty", value=None)),
        "rejected_at_us": TIME_US,
    }
    return EventRejected(**(fields | changes))


an_inference = an_inference_completed
a_feedback = a_feedback_reported

BUILDERS: Mapping[type[Event], Callable[..., Event]] = {
    InferenceCompleted: an_inference_completed,
    FeedbackReported: a_feedback_reported,
    ErasureRequested: an_erasure_requested,
    ScenarioConfigured: a_scenario_configured,
    ClockTicked: a_clock_ticked,
    ExperienceAssembled: an_experience_assembled,
    ExperienceRevised: an_experience_revised,
    ExperienceWithdrawn: an_experience_withdrawn,
    ReleaseAdvanced: a_release_advanced,
    BatchSettled: a_batch_settled,
    TrainingSample: a_training_sample,
    BatchSealed: a_batch_sealed,
    CandidateTrained: a_candidate_trained,
    TrainingFailed: a_training_failed,
    CandidateEvaluated: a_candidate_evaluated,
    ReleasePublished: a_release_published,
    SwapRequested: a_swap_requested,
    ModelSwapped: a_model_swapped,
    SwapFailed: a_swap_failed,
    RollBackRelease: a_roll_back_release,
    PromoteCandidate: a_promote_candidate,
    OutcomeSettled: an_outcome_settled,
    ReportAccepted: a_report_accepted,
    EventRejected: an_event_rejected,
}
"""The builder of every event type."""
