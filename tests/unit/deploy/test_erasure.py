from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.erasure import (
    HOLDS,
    Reached,
    erasure_lines,
    erasure_object,
    last_untouched,
    remains,
    touched,
)
from schemas.events import ArtifactKind, InferenceCompleted, Operation, ReleasePublished
from schemas.ids import BatchId, CandidateId, ReleaseId
from schemas.topics import EXPERIENCE, FOREVER_MS, INTERACTIONS, TOPICS, TRAINING
from tests.builders import a_receipt, a_release_published

BATCH = BatchId("the batch")


def a_release(seq: int, operation: Operation = Operation.TRAINING, **changes: Any) -> ReleasePublished:
    named: dict[str, Any] = {
        "release_seq": seq,
        "release_id": ReleaseId(f"r{seq}"),
        "parent_release_id": ReleaseId(f"r{seq - 1}") if seq else None,
        "operation": operation if seq else Operation.CREATION,
        "candidate_id": CandidateId(f"c{seq}") if seq else None,
        "batch_ids": (BatchId(f"b{seq}"),) if seq else (),
        "rollback_target_release_id": None,
    }
    return a_release_published(**(named | changes))


def seqs(releases: list[ReleasePublished], **bases: str) -> list[tuple[int, bool]]:
    known = {CandidateId(name): ReleaseId(base) for name, base in bases.items()}
    return [(one.release.release_seq, one.is_direct) for one in touched(releases, {BATCH}, known)]


def test_a_release_of_the_batch_and_all_that_were_trained_on_from_it_have_learned() -> None:
    chain = [a_release(0), a_release(1), a_release(2, batch_ids=(BATCH,)), a_release(3), a_release(4)]
    assert seqs(chain) == [(2, True), (3, False), (4, False)]
    assert seqs(list(reversed(chain))) == seqs(chain), "whatever the order they are read in"
    clean = last_untouched(chain, touched(chain, {BATCH}, {}))
    assert clean is not None
    assert clean.release_seq == 1


def test_a_rollback_has_learned_what_its_target_had_and_so_has_what_follows() -> None:
    def back(seq: int, target: int) -> ReleasePublished:
        return a_release(
            seq, Operation.ROLLBACK, rollback_target_release_id=ReleaseId(f"r{target}"), batch_ids=()
        )

    chain = [a_release(0), a_release(1), a_release(2, batch_ids=(BATCH,)), back(3, 1), a_release(4)]
    assert seqs(chain) == [(2, True)]
    assert seqs([*chain, back(5, 2), a_release(6)]) == [(2, True), (5, False), (6, False)]


def test_a_promoted_candidate_has_learned_what_its_own_base_had() -> None:
    promoted = a_release(3, Operation.PROMOTE)
    chain = [a_release(0), a_release(1), a_release(2, batch_ids=(BATCH,)), promoted]
    assert seqs(chain, c3="r1") == [(2, True)]
    assert seqs(chain, c3="r2") == [(2, True), (3, False)]
    assert seqs(chain) == [(2, True), (3, False)], "where the base is not known, the worst is assumed"


def test_a_harness_learned_nothing_from_weights_and_is_no_place_to_roll_weights_back_to() -> None:
    def tree(seq: int, **changes: Any) -> ReleasePublished:
        return a_release(seq, kind=ArtifactKind.HARNESS, **changes)

    chain = [a_release(0), a_release(1, batch_ids=(BATCH,)), tree(2), a_release(3), tree(4)]
    assert seqs(chain) == [(1, True), (3, False)]
    assert seqs(chain, c4="r3") == [(1, True), (3, False)], "its base is only where the chain stood"
    clean = last_untouched(chain, touched(chain, {BATCH}, {}))
    assert clean is not None
    assert clean.release_seq == 0
    made_of_it = [a_release(0), tree(1, batch_ids=(BATCH,)), a_release(2), tree(3)]
    assert seqs(made_of_it) == [(1, True), (3, False)]


@given(st.integers(0, 12), st.integers(1, 12))
def test_without_rollbacks_everything_from_the_first_batch_on_has_learned(length: int, first: int) -> None:
    chain = [a_release(seq, batch_ids=(BATCH,) if seq == first else ()) for seq in range(length + 1)]
    assert [seq for seq, _ in seqs(chain)] == list(range(first, length + 1))


def test_what_stays_is_told_for_each_topic_that_may_hold_text_until_its_own_retention_ends() -> None:
    stays = remains({INTERACTIONS: 1_000, TRAINING: FOREVER_MS, "another": 5}, now_us=7)
    assert [(one.topic, one.until_us) for one in stays] == [(INTERACTIONS, 1_000_007), (TRAINING, None)]
    assert {INTERACTIONS, EXPERIENCE, TRAINING} <= set(HOLDS)
    assert [name for name, spec in TOPICS.items() if InferenceCompleted in spec.events] == [INTERACTIONS]


def test_programs_and_people_are_told_the_same() -> None:
    chain = [a_release(0), a_release(1, batch_ids=(BATCH,)), a_release(2)]
    found = touched(chain, {BATCH}, {})
    reached = Reached(
        receipts={a_receipt(1), a_receipt(2), a_receipt(3)},
        states={a_receipt(1): "trained", a_receipt(2): "forgotten"},
        batches={BATCH},
    )
    stays = remains({INTERACTIONS: 1_000}, now_us=0)
    told = erasure_object(reached, found, last_untouched(chain, found), stays)
    assert told["calls"] == {"found": 3, "outcomes": {"forgotten": 1, "pending": 1, "trained": 1}}
    assert [(one["release_seq"], one["is_direct"]) for one in told["releases"]] == [(1, True), (2, False)]
    assert told["last_untouched_release_id"] == "r0"
    args = (reached, found, last_untouched(chain, found), stays)
    text = "\n".join(erasure_lines(*args, when=lambda at_us: f"time {at_us}"))
    for words in ("1 forgotten, 1 pending, 1 trained", "1  r1  from a batch", "2  r2  on from", "0  r0"):
        assert words in text
    assert f"{INTERACTIONS}: {HOLDS[INTERACTIONS]}, until time 1000000" in text
    assert "weights" in text


@pytest.mark.parametrize("batches", [set(), {BatchId("another")}])
def test_nothing_learned_is_said_too(batches: set[BatchId]) -> None:
    chain = [a_release(0), a_release(1)]
    assert touched(chain, batches, {}) == []
    lines = list(erasure_lines(Reached(), [], None, [], when=str))
    assert "calls found in the log: 0; their outcomes so far: none" in lines
    assert "releases that learned from them: none known" in lines
