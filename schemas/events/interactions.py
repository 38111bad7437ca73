"""Pure: what applications did, and what they said of it, as events of `reef.interactions.v1`.

Next: schemas/ids.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas.ids import Receipt, ReleaseId, ReportId, Route, ScenarioName, Session, Sha256
from schemas.packed import JsonBytes, Logprobs, TokenIds


class Api(StrEnum):
    """The API that a client spoke."""

    UNSPECIFIED = "unspecified"
    """Written by a newer gateway than the reader knows."""
    CHAT = "chat"
    """OpenAI chat completions."""
    COMPLETIONS = "completions"
    """OpenAI completions."""
    MESSAGES = "messages"
    """Anthropic Messages."""
    RESPONSES = "responses"
    """OpenAI Responses."""


class CallOutcome(StrEnum):
    """How a call ended, seen from the gateway."""

    UNSPECIFIED = "unspecified"
    """Written by a newer gateway than the reader knows."""
    COMPLETED = "completed"
    """The whole answer was produced."""
    CLIENT_ABORTED = "client_aborted"
    """The client left before the end; the tokens seen until then are kept."""
    UPSTREAM_FAILED = "upstream_failed"
    """The engine broke off; the tokens seen until then are kept."""


class CaptureFault(StrEnum):
    """Why the captured tokens may not be the exact ones."""

    UNSPECIFIED = "unspecified"
    """Written by a newer gateway than the reader knows."""
    TOKEN_GAP = "token_gap"
    """The ids captured are not as many as the usage that the engine reported."""
    NOT_TOKEN_EXACT = "not_token_exact"
    """The engine gave no ids or no logprobs of the distribution it sampled from."""


class SamplingConstraint(StrEnum):
    """What narrowed the support of the sampling distribution, beside the numbers in `Sampling`."""

    UNSPECIFIED = "unspecified"
    """Written by a newer gateway than the reader knows."""
    LOGIT_BIAS = "logit_bias"
    """Logits were shifted by the client."""
    STRUCTURED_OUTPUT = "structured_output"
    """`response_format` or another grammar ruled out tokens."""
    FORCED_TOOL = "forced_tool"
    """`tool_choice` required a tool or named one."""
    MIN_TOKENS = "min_tokens"
    """The end of the sequence was ruled out for a while."""
    BAD_WORDS = "bad_words"
    """Words were ruled out."""
    ALLOWED_TOKEN_IDS = "allowed_token_ids"
    """Only some tokens were allowed."""


class FeedbackSource(StrEnum):
    """The door by which feedback came in."""

    UNSPECIFIED = "unspecified"
    """Written by a newer writer than the reader knows."""
    HTTP = "http"
    """POST /reef/report or an import; receipts were checked by HMAC."""
    KAFKA = "kafka"
    """Written to the topic directly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer of a call, token by token."""

    index: int
    """Position among the call's answers, from 0."""
    token_ids: TokenIds
    """The ids that the engine generated."""
    logprobs: Logprobs
    """Of each id under the distribution it was sampled from; empty when the engine gave none."""
    finish_reason: str | None
    """As the engine said; None when the answer broke off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The sampling parameters as sent to the engine, defaults written out."""

    temperature: float
    """0 is greedy; between 0 and 0.01 the engine uses 0.01, and so it is written here."""
    top_p: float
    """1 keeps the whole distribution."""
    top_k: int
    """0 keeps the whole distribution."""
    min_p: float
    """0 keeps the whole distribution."""
    presence_penalty: float
    """0 is none."""
    frequency_penalty: float
    """0 is none."""
    repetition_penalty: float
    """1 is none."""
    seed: int | None
    """As the client asked; None when it did not."""
    constraints: tuple[SamplingConstraint, ...]
    """What else narrowed the distribution, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the engine counted them."""

    prompt: int
    """Tokens of the rendered prompt."""
    completion: int
    """Tokens generated, over all choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSpan:
    """A run of generated tokens that came from one release."""

    release_seq: int
    """The release that produced them."""
    num_tokens: int
    """How many, over all choices; -1 when a buffered call straddled a swap and the split is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCompleted:
    """A call was answered, wholly or in part."""

    receipt: Receipt
    """The call's name, made before the engine was asked; feedback quotes it."""
    scenario: ScenarioName
    """The learning problem that the call belongs to."""
    route: Route
    """Hex of the receipt's route; the record's key."""
    session: Session | None
    """As the client tagged it; None when it did not."""
    api: Api
    """The API that the client spoke."""
    model: str
    """The model's public name, as answered."""
    outcome: CallOutcome
    """How the call ended."""
    request: JsonBytes
    """The client's body, byte for byte."""
    response: JsonBytes
    """The answer in the client's API, aggregated when it was streamed."""
    prompt_token_ids: TokenIds
    """The rendered prompt; empty when the engine gave no ids."""
    choices: tuple[Choice, ...]
    """By index."""
    sampling: Sampling
    """What the engine was asked to sample with."""
    usage: Usage
    """As the engine counted."""
    logprobs_mode: str
    """`processed_logprobs` when logprobs are of the distribution sampled from, else the engine's mode."""
    request_id: str
    """The `x-request-id` of the exchange."""
    tokenizer_digest: Sha256
    """Of the tokenizer that made the ids."""
    chat_template_digest: Sha256
    """Of the template that rendered the prompt."""
    release_id: ReleaseId
    """The release that began the answer."""
    weight_spans: tuple[WeightSpan, ...]
    """In order of generation."""
    tags: Mapping[str, str]
    """`x-reef-tag-*` by lower-case name, without the session."""
    capture_faults: tuple[CaptureFault, ...]
    """Empty when ids and logprobs are exact."""
    is_opted_out: bool
    """The client forbade training on this call."""
    imported_id: str | None
    """The client's own id of an imported call; None for a call answered here."""
    started_at_us: int
    """When the request came in; microseconds UTC."""
    completed_at_us: int
    """When its last byte left, or it broke off; microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackReported:
    """Somebody said how good one or more answers were."""

    report_id: ReportId
    """Idempotency key within the scenario."""
    scenario: ScenarioName
    """The learning problem that the calls belong to."""
    route: Route
    """Hex route shared by all references; the record's key."""
    references: tuple[Receipt, ...]
    """The calls judged, in the order given."""
    part: int
    """Number of this part, from 0, when a report spans several routes."""
    num_parts: int
    """How many parts the report has."""
    score: float | None
    """Finite; None when the report gives none."""
    feedback: JsonBytes | None
    """Free text or an object, as canonical JSON."""
    metadata: JsonBytes | None
    """An object that recipes may read, as canonical JSON."""
    supersedes: ReportId | None
    """An earlier report that this one replaces."""
    is_withdrawal: bool
    """The superseded report is taken back and nothing replaces it."""
    content_sha256: Sha256
    """Of the report's canonical JSON; the fold computes it anew."""
    source: FeedbackSource
    """The door it came in by."""
    reported_at_us: int
    """By the writer's clock; microseconds UTC. Data, never a window's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequested:
    """From here on these calls enter no batch, in replays too."""

    scenario: ScenarioName
    """The learning problem that the calls belong to."""
    session: Session | None
    """Every call of this session; None when receipts name the calls."""
    receipts: tuple[Receipt, ...]
    """The calls to forget."""
    requested_at_us: int
    """Microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTicked:
    """Time passed: the record's own timestamp is all that this says."""
