"""Pure: the relays: what happened to batches and releases, told to the folds (STREAMS 15, 22).

They map and nothing else: one event of one log to events of another, in an order that matters. A batch ends
once: with its release, its refusal or its failure, never with a candidate that may still be published.
"""

from collections.abc import Mapping

from schemas.errors import RejectedError
from schemas.events import (
    BatchSettled,
    BatchState,
    CandidateEvaluated,
    CandidateTrained,
    Event,
    ModelSwapped,
    Operation,
    PromoteCandidate,
    ReleaseAdvanced,
    ReleasePublished,
    RollBackRelease,
    ScenarioConfigured,
    SwapFailed,
    SwapRequested,
    TrainingFailed,
    Verdict,
)
from schemas.ids import BatchId, CandidateId, ReleaseId, ScenarioName
from schemas.kinds import is_weights
from schemas.topics import EXPERIENCE, INTERACTIONS
from streams.outputs import Emitted, Fetched, Output, Refused, Timed


class RelayState:
    """A relay remembers nothing but its offset, which the runner keeps, and how widely it tells."""

    def __init__(self, *, num_partitions: int) -> None:
        """Tell scenarios to this many partitions of `reef.interactions.v1`."""
        self.num_partitions = num_partitions
        self.now_us = 0

    def load(self, key: bytes, value: bytes) -> None:
        """Take in an entry: there are none."""
        raise ValueError(f"expected no state of a relay, got {key!r}: another program wrote to its topic")

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Give the entries changed: there are none."""
        return {}

    def num_pending(self) -> int:
        """Count what waits: nothing."""
        return 0

    def earliest_deadline_us(self) -> int | None:
        """Give what a tick would change: nothing."""
        return None


def step(state: RelayState, timed: Timed, fetched: Fetched) -> tuple[RelayState, tuple[Output, ...]]:
    """Take one event."""
    try:
        return state, relay(timed.event, num_partitions=state.num_partitions)
    except RejectedError as error:
        return state, (Refused(offset=timed.offset, error=error),)


def needs(state: RelayState, timed: Timed, fetched: Fetched) -> frozenset[int]:
    """Name what must be read back: nothing."""
    return frozenset()


_ENDING_VERDICTS = {Verdict.REJECTED: BatchState.REJECTED, Verdict.HELD: BatchState.HELD}
_NOT_TOLD = (ModelSwapped, PromoteCandidate, RollBackRelease, SwapFailed, SwapRequested)


def relay(event: Event, *, num_partitions: int) -> tuple[Output, ...]:
    """Tell the folds. `num_partitions` are those of `reef.interactions.v1`. Raises RejectedError."""
    match event:
        case ScenarioConfigured():
            return _relay_scenario(event, num_partitions)
        case ReleasePublished():
            return _relay_release(event)
        case CandidateEvaluated():
            return _relay_verdict(event)
        case CandidateTrained() | TrainingFailed():
            return _relay_training(event)
        case _ if isinstance(event, _NOT_TOLD):
            return ()
        case _:
            raise RejectedError(
                f"expected scenarios, releases, candidates or commands, got {type(event).__name__}: "
                "write it to its own topic",
                reason="unexpected_event",
            )


def _relay_scenario(event: ScenarioConfigured, num_partitions: int) -> tuple[Output, ...]:
    copies = [Emitted(event=event, topic=INTERACTIONS, partition=number) for number in range(num_partitions)]
    return (*copies, Emitted(event=event, topic=EXPERIENCE))


def _relay_release(event: ReleasePublished) -> tuple[Output, ...]:
    """The head moves first, so that the next batch is sealed on it; only weights are a base of batches."""
    advanced = ReleaseAdvanced(
        scenario=event.scenario,
        release_id=event.release_id,
        release_seq=event.release_seq,
        operation=event.operation,
        candidate_id=event.candidate_id,
        artifact_uri=event.artifact_uri,
        content_sha256=event.content_sha256,
        tokenizer_digest=event.tokenizer_digest,
        advanced_at_us=event.published_at_us,
    )
    batch_ids = event.batch_ids if event.operation is Operation.TRAINING else ()
    settled = [
        _settled(
            event.scenario,
            batch_id,
            BatchState.TRAINED,
            candidate_id=event.candidate_id,
            release_id=event.release_id,
            at_us=event.published_at_us,
        )
        for batch_id in batch_ids
    ]
    moved = (Emitted(event=advanced, topic=EXPERIENCE),) if is_weights(event.kind) else ()
    return (*moved, *settled)


def _relay_verdict(event: CandidateEvaluated) -> tuple[Output, ...]:
    state = _ENDING_VERDICTS.get(event.verdict)
    if state is None:
        return ()  # accepted: its release will tell
    return tuple(
        _settled(
            event.scenario, batch_id, state, candidate_id=event.candidate_id, at_us=event.evaluated_at_us
        )
        for batch_id in event.batch_ids
    )


def _relay_training(event: CandidateTrained | TrainingFailed) -> tuple[Output, ...]:
    if isinstance(event, TrainingFailed):
        return (_settled(event.scenario, event.batch_id, BatchState.FAILED, at_us=event.failed_at_us),)
    if event.is_publishable:
        return ()  # its evaluation will tell
    return (
        _settled(
            event.scenario,
            event.batch_id,
            BatchState.WARMED_UP,
            candidate_id=event.candidate_id,
            at_us=event.trained_at_us,
        ),
    )


def _settled(
    scenario: ScenarioName,
    batch_id: BatchId,
    state: BatchState,
    *,
    at_us: int,
    candidate_id: CandidateId | None = None,
    release_id: ReleaseId | None = None,
) -> Output:
    event = BatchSettled(
        scenario=scenario,
        batch_id=batch_id,
        state=state,
        candidate_id=candidate_id,
        release_id=release_id,
        settled_at_us=at_us,
    )
    return Emitted(event=event, topic=EXPERIENCE)
