"""A loop over a fold's step: the log is a list, and what a step wants back is read from it."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from schemas.events import (
    Choice,
    ClockTicked,
    Event,
    FeedbackReported,
    InferenceCompleted,
    OutcomeReason,
    OutcomeSettled,
    ScenarioConfigured,
    TrainingTarget,
    Usage,
    WeightSpan,
)
from schemas.ids import (
    Receipt,
    ReportId,
    Route,
    ScenarioName,
    Session,
    Sha256,
    mint_receipt,
    route_of_session,
)
from schemas.packed import JsonBytes
from schemas.partitions import partition_of
from schemas.topics import key_of
from streams import batch, session
from streams.batch_state import BatchState
from streams.outputs import Counted, Emitted, Fetched, FoldState, Output, Refused, Timed
from streams.session_state import SessionState
from tests.builders import (
    a_feedback_reported,
    a_sampling,
    a_scenario_configured,
    an_inference_completed,
    pack_logprobs,
    pack_tokens,
)
from tests.unit.streams.recipes import load

SCENARIO = ScenarioName("capitals")
SESSION = Session("s-1")
START_US = 1_790_000_000_000_000
HOUR_US = 3_600_000_000
NUM_PARTITIONS = 4
KEY = b"a key of the tests"
DIGEST = Sha256("5d" * 32)

State = TypeVar("State", bound=FoldState)
Step = Callable[[State, Timed, Fetched], tuple[State, tuple[Output, ...]]]
Needs = Callable[[State, Timed, Fetched], frozenset[int]]


@dataclass
class Folding(Generic[State]):
    """A fold at work on one partition."""

    state: State
    step: Step[State]
    needs: Needs[State]
    partition: int = 0
    log: dict[int, Timed] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    stored: dict[bytes, bytes] = field(default_factory=dict)
    truncated_below: int = 0
    num_questions: int = 0
    """How often a step asked for events before it could be taken."""

    def take(self, event: Event, at_us: int | None = None, key: bytes | None = None) -> tuple[Output, ...]:
        """Append an event to the log and fold it."""
        before = self.log[max(self.log)].time_us if self.log else START_US
        timed = Timed(
            event=event,
            time_us=before + 1_000 if at_us is None else at_us,
            partition=self.partition,
            offset=max(self.log, default=-1) + 1,
            key=key_of(event) if key is None else key,
        )
        self.log[timed.offset] = timed
        return self.fold(timed)

    def fold(self, timed: Timed) -> tuple[Output, ...]:
        """Ask, fetch, step; keep what changed."""
        fetched: dict[int, Timed | None] = {}
        while wanted := self.needs(self.state, timed, fetched):
            assert wanted.isdisjoint(fetched), "asked for what was given"
            self.num_questions += 1
            fetched |= {at: None if at < self.truncated_below else self.log[at] for at in wanted}
        self.state, outputs = self.step(self.state, timed, fetched)
        self.outputs += outputs
        for name, value in self.state.changes().items():
            if value is None:
                self.stored.pop(name, None)
            else:
                self.stored[name] = value
        return outputs

    def tick(self, after_us: int) -> tuple[Output, ...]:
        """Let time pass."""
        return self.take(ClockTicked(), self.log[max(self.log)].time_us + after_us)

    def emitted(self, kind: type[Any]) -> list[Any]:
        return emitted(self.outputs, kind)

    def refused(self) -> list[tuple[int, str]]:
        return [(each.offset, each.error.reason) for each in self.outputs if isinstance(each, Refused)]

    def counted(self) -> list[str]:
        return [each.what for each in self.outputs if isinstance(each, Counted)]

    def reasons(self) -> dict[Receipt, OutcomeReason | None]:
        """The reason of each call's outcome; asserts that there is one outcome a call."""
        outcomes: list[OutcomeSettled] = self.emitted(OutcomeSettled)
        found = {each.receipt: each.reason for each in outcomes}
        assert len(found) == len(outcomes), "a call has two outcomes"
        return found


def emitted(outputs: Iterable[Output], kind: type[Any]) -> list[Any]:
    return [each.event for each in outputs if isinstance(each, Emitted) and isinstance(each.event, kind)]


def new_session_state(partition: int = 0) -> SessionState:
    return SessionState(partition=partition, num_partitions=NUM_PARTITIONS, load_recipe=load)


def session_folding(*, route: Route | None = None, **configuration: Any) -> Folding[SessionState]:
    """A session fold whose scenario is configured; of the partition of a route."""
    home = partition_of((route or route_of_session(SCENARIO, SESSION)).encode(), NUM_PARTITIONS)
    folding = Folding(new_session_state(home), session.step, session.needs, home)
    folding.take(a_configuration(**configuration), START_US)
    return folding


def batch_folding(**configuration: Any) -> Folding[BatchState]:
    """A batch fold whose scenario is configured."""
    folding = Folding(BatchState(load_recipe=load), batch.step, batch.needs)
    folding.take(a_configuration(**configuration), START_US)
    return folding


def a_configuration(
    *,
    recipe: str = "score",
    streams: dict[str, Any] | None = None,
    target: TrainingTarget = TrainingTarget.FULL,
    is_retired: bool = False,
    scenario: ScenarioName = SCENARIO,
    **options: Any,
) -> ScenarioConfigured:
    body = {"recipe": options, "streams": streams or {}}
    changes: dict[str, Any] = {
        "scenario": scenario,
        "recipe": recipe,
        "options": JsonBytes(json.dumps(body).encode()),
        "target": target,
        "is_retired": is_retired,
    }
    return a_scenario_configured(**changes)


def receipt_at(
    number: int, *, session: Session | None = SESSION, route: Route | None = None, made_us: int | None = None
) -> Receipt:
    """Name call `number` of a session; receipts of rising numbers were made one after another."""
    if route is None:
        route = route_of_session(SCENARIO, session or Session("untagged"))
    time_ms = (START_US if made_us is None else made_us) // 1_000 + number
    return mint_receipt(SCENARIO, route, time_ms=time_ms, nonce=number.to_bytes(6, "big"), key=KEY)


def a_call(
    number: int,
    prompt: Sequence[int] = (1, 2, 3),
    answer: Sequence[int] = (7, 8),
    *,
    session: Session | None = SESSION,
    route: Route | None = None,
    **changes: Any,
) -> InferenceCompleted:
    """Call `number` of a session, with these tokens; its logprobs tell the number and the place."""
    home = route or route_of_session(SCENARIO, session or Session("untagged"))
    fields: dict[str, Any] = {
        "receipt": receipt_at(number, session=session, route=home),
        "scenario": SCENARIO,
        "route": home,
        "session": session,
        "prompt_token_ids": pack_tokens(prompt),
        "choices": (an_answer(answer, number),),
        "sampling": a_sampling(),
        "usage": Usage(prompt=len(prompt), completion=len(answer)),
        "weight_spans": (WeightSpan(release_seq=0, num_tokens=len(answer)),),
        "imported_id": None,
    }
    return an_inference_completed(**(fields | changes))


def an_answer(tokens: Sequence[int], number: int = 0, index: int = 0) -> Choice:
    logprobs = [-(number * 1_000 + place + 1) / 1_000_000 for place in range(len(tokens))]
    return Choice(
        index=index, token_ids=pack_tokens(tokens), logprobs=pack_logprobs(logprobs), finish_reason="stop"
    )


def a_report(
    name: str, *references: Receipt, score: float | None = 1.0, metadata: Any = None, **changes: Any
) -> FeedbackReported:
    """A report on calls of one route."""
    fields: dict[str, Any] = {
        "report_id": ReportId(name),
        "scenario": SCENARIO,
        "route": route_of_session(SCENARIO, SESSION),
        "references": references,
        "part": 0,
        "num_parts": 1,
        "score": score,
        "feedback": None,
        "metadata": None if metadata is None else JsonBytes(json.dumps(metadata).encode()),
        "supersedes": None,
        "is_withdrawal": False,
    }
    return a_feedback_reported(**(fields | changes))


def retimed(timed: Timed, **changes: Any) -> Timed:
    return replace(timed, **changes)
