"""Shell: the way out of a batch that cannot be trained: it ends as failed, and reading goes on behind it.

Not a judgement of the batch: an operator's decision, while the trainer stands still.
"""

from pathlib import Path

from schemas.errors import RejectedError
from schemas.ids import BatchId, ScenarioName
from trainers.batch import Batch
from trainers.checkpoint import read_pointer, write_pointer
from trainers.cursor import Cursor
from trainers.lock import only_one
from trainers.loop import HEARTBEAT_S
from trainers.results import failure_of
from trainers.state import Failed, State, first_state

REASON = "abandoned"
DETAIL = "an operator gave the batch up: its calls end as training_failed"


def abandon(folder: Path, cursor: Cursor, scenario: ScenarioName, batch_id: BatchId, *, now_us: int) -> State:
    """Give a batch up: pointer first, event second, as for every other end.

    Raises RejectedError when the log is whole and the batch is not ahead in it, ConflictError while a
    trainer runs.
    """
    with only_one(folder):
        first, end = cursor.bounds()
        state = read_pointer(folder) or first_state(scenario, offset=first, threads=1, ranks=1)
        is_whole = first <= state.offset <= end
        batch = cursor.find(batch_id, state.offset if is_whole else first)
        if batch is None and is_whole:
            raise RejectedError(
                f"expected a batch from offset {state.offset} on, got {batch_id}, which is not there: "
                "see reef status for the batch in flight",
                reason="unknown_batch",
            )
        state = moved_on(state, batch, batch_id, first=first, now_us=now_us)
        write_pointer(folder, state)
        assert state.result is not None
        assert isinstance(state.result, Failed)
        cursor.announce(failure_of(scenario, state.result))
        while not cursor.is_announced(HEARTBEAT_S):
            pass
    return state


def moved_on(state: State, batch: Batch | None, batch_id: BatchId, *, first: int, now_us: int) -> State:
    """Stand behind the batch, or at the beginning of what is left when the log lost it."""
    result = Failed(batch_id=batch_id, reason=REASON, detail=DETAIL, failed_at_us=now_us)
    return state.model_copy(
        update={
            "offset": batch.next_offset if batch else first,
            "batch_seq": batch.sealed.batch_seq if batch else state.batch_seq + 1,
            "result": result,
        }
    )
