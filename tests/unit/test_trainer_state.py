import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RejectedError
from schemas.events import ArtifactKind, OptimizerState
from schemas.ids import BatchId, ScenarioName, Sha256
from tests.tiny import a_batch
from trainers.abandon import moved_on
from trainers.base import road_to
from trainers.batch import Batch
from trainers.results import NO_MANIFEST, candidate_of, failed_of, failure_of, kept_of, trained_of
from trainers.state import (
    Kept,
    State,
    Trained,
    after_failure,
    after_step,
    candidate_id_of,
    decode_state,
    first_state,
    retained,
    steps_of,
)

CONTENTS = [Sha256(digit * 64) for digit in "0123"]
BASE = CONTENTS[0]
START = first_state(ScenarioName("tiny"), offset=3, threads=1, ranks=1)

folders = st.lists(st.sampled_from([*CONTENTS, None]), min_size=1, max_size=8).map(
    lambda contents: tuple(
        Kept(folder=str(n), content_sha256=content, step=n) for n, content in enumerate(contents)
    )
)


def result_of(batch: Batch, *, is_publishable: bool = True) -> Trained:
    return trained_of(
        batch.sealed,
        kind=ArtifactKind.CHECKPOINT,
        step=batch.sealed.batch_seq + 1,
        metrics={"grad_norm": 0.5, "undefined": float("nan")},
        optimizer=OptimizerState.KEPT,
        is_publishable=is_publishable,
        at_us=7,
    )


def stepped(state: State, batch: Batch, content: Sha256) -> State:
    result = result_of(batch)
    return after_step(state, kept_of(result), batch, result, num_newest=2).with_content(content)


def based_on(seq: int, content: Sha256) -> Batch:
    return a_batch(seq, num_samples=1, base_content_sha256=content)


@given(folders, st.integers(1, 3))
def test_the_newest_and_the_base_are_kept_and_nothing_else(kept: tuple[Kept, ...], num_newest: int) -> None:
    left = retained(kept, base=BASE, num_newest=num_newest)
    assert kept[-1] in left
    assert left == tuple(one for one in kept if one in left)
    of_base = [one for one in kept if one.content_sha256 == BASE]
    expected = {one.folder for one in kept[-num_newest:]} | {one.folder for one in of_base[-1:]}
    assert {one.folder for one in left} == expected


def test_the_road_is_the_shortest_that_leads_to_the_content() -> None:
    state = START
    assert road_to(state, BASE) is OptimizerState.FRESH
    for seq, content in enumerate(CONTENTS[1:]):
        state = stepped(state, based_on(seq, BASE), content)
    assert road_to(state, CONTENTS[3]) is OptimizerState.KEPT
    assert road_to(state, CONTENTS[2]) is OptimizerState.RESTORED
    assert road_to(state, CONTENTS[1]) is OptimizerState.FRESH


def test_a_base_far_back_is_kept_as_long_as_batches_start_from_it() -> None:
    state = START
    for seq, content in enumerate(CONTENTS[1:]):
        state = stepped(state, based_on(seq, CONTENTS[1]), content)
    assert road_to(state, CONTENTS[1]) is OptimizerState.RESTORED
    assert len(state.kept) == 3


def test_a_content_that_is_not_named_yet_is_no_road() -> None:
    batch = based_on(0, BASE)
    result = result_of(batch)
    state = after_step(START, kept_of(result), batch, result, num_newest=2)
    assert state.held_content is None
    assert road_to(state, BASE) is OptimizerState.FRESH


def test_a_step_moves_offset_and_tensors_together_and_a_failure_the_offset_alone() -> None:
    batch = based_on(4, BASE)
    state = stepped(START, batch, CONTENTS[1])
    assert (state.offset, state.batch_seq, state.held) == (batch.next_offset, 4, state.kept[-1].folder)
    assert steps_of(state) == 5
    later = based_on(5, BASE)
    failed = after_failure(state, later, failed_of(later.sealed, reason="non_finite", detail="x", at_us=9))
    assert (failed.offset, failed.batch_seq, failed.held) == (later.next_offset, 5, state.held)
    assert failed.kept == state.kept


def test_the_pointer_survives_its_bytes() -> None:
    state = stepped(START, based_on(0, BASE), CONTENTS[1])
    assert decode_state(state.model_dump_json().encode()) == state
    assert isinstance(state.result, Trained)
    assert state.result.metrics == {"grad_norm": 0.5}


@pytest.mark.parametrize("data", [b"", b"{}", START.model_dump_json().encode().replace(b'1,"sc', b'2,"sc')])
def test_a_damaged_pointer_is_refused(data: bytes) -> None:
    with pytest.raises(RejectedError, match="pointer of version 1"):
        decode_state(data)


def test_the_same_batch_is_always_the_same_candidate() -> None:
    assert candidate_id_of(BatchId("a")) == candidate_id_of(BatchId("a")) != candidate_id_of(BatchId("b"))


def test_a_warm_up_is_its_base_and_exports_nothing() -> None:
    result = result_of(based_on(0, BASE), is_publishable=False)
    assert kept_of(result).content_sha256 == BASE
    event = candidate_of(ScenarioName("tiny"), result, None)
    assert (event.artifact_uri, event.manifest_sha256) == (result.base_artifact_uri, NO_MANIFEST)
    assert not event.is_publishable


def test_a_failure_says_why_within_bounds() -> None:
    batch = based_on(0, BASE)
    failed = failed_of(batch.sealed, reason="non_finite", detail="x" * 9_999, at_us=9)
    event = failure_of(ScenarioName("tiny"), failed)
    assert (event.batch_id, event.reason, len(event.detail)) == (batch.sealed.batch_id, "non_finite", 2_000)


def test_an_abandoned_batch_is_passed_by_and_a_lost_one_leads_to_what_is_left() -> None:
    batch = based_on(6, BASE)
    found = moved_on(START, batch, batch.sealed.batch_id, first=3, now_us=1)
    lost = moved_on(replace_offset(START, 1), None, batch.sealed.batch_id, first=40, now_us=1)
    assert (found.offset, found.batch_seq) == (batch.next_offset, 6)
    assert (lost.offset, lost.batch_seq) == (40, 0)


def replace_offset(state: State, offset: int) -> State:
    return state.model_copy(update={"offset": offset})
