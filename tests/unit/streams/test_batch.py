"""The batch fold, rule by rule (STREAMS 17, 20, 22 to 24, 30)."""

from typing import Any

import pytest

from schemas.events import (
    BatchSealed,
    BatchSettled,
    BatchState,
    ErasureRequested,
    ExperienceAssembled,
    Operation,
    OutcomeReason,
    OutcomeSettled,
    OutcomeState,
    TrainingSample,
    TrainingTarget,
)
from schemas.ids import BatchId, CandidateId, ExperienceId, ReleaseId, Session, Sha256, derived_id
from schemas.packed import JsonBytes
from streams import batch_state
from tests.builders import (
    a_batch_settled,
    a_release_advanced,
    an_erasure_requested,
    an_experience_assembled,
    an_experience_revised,
    an_experience_withdrawn,
    pack_logprobs,
    pack_mask,
    pack_temperatures,
    pack_tokens,
)
from tests.unit.streams.folding import (
    HOUR_US,
    SCENARIO,
    Folding,
    a_configuration,
    batch_folding,
    emitted,
    receipt_at,
)

Batch = Folding[batch_state.BatchState]


def content(number: int) -> Sha256:
    return Sha256(f"{number:02x}" * 32)


def a_head(seq: int, serves: int | None = None, **changes: Any) -> Any:
    """Release `seq` with content `serves`, its own number unless told otherwise."""
    fields = {
        "scenario": SCENARIO,
        "release_id": ReleaseId(f"release-{seq}"),
        "release_seq": seq,
        "operation": Operation.TRAINING if seq else Operation.CREATION,
        "candidate_id": CandidateId(f"candidate-{seq}") if seq else None,
        "content_sha256": content(seq if serves is None else serves),
    }
    return a_release_advanced(**(fields | changes))


def an_experience(
    number: int, seq: int = 0, last_seq: int | None = None, **changes: Any
) -> ExperienceAssembled:
    """Experience `number`, sampled from release `seq`."""
    fields = {
        "experience_id": ExperienceId(derived_id("experience", str(number))),
        "scenario": SCENARIO,
        "receipts": (receipt_at(number),),
        "token_ids": pack_tokens([number, 2, 3]),
        "loss_mask": pack_mask([0, 1, 1]),
        "logprobs": pack_logprobs([0, -0.5, -0.25]),
        "temperatures": pack_temperatures([1, 1, 1]),
        "release_seq_first": seq,
        "release_seq_last": seq if last_seq is None else last_seq,
        "reward": 1.0,
    }
    return an_experience_assembled(**(fields | changes))


def of(experience: ExperienceAssembled) -> dict[str, Any]:
    return {
        "experience_id": experience.experience_id,
        "scenario": experience.scenario,
        "receipts": experience.receipts,
    }


def a_settlement(
    batch_id: BatchId, state: BatchState, seq: int | None = None, name: str = "c"
) -> BatchSettled:
    return a_batch_settled(
        scenario=SCENARIO,
        batch_id=batch_id,
        state=state,
        candidate_id=CandidateId(name),
        release_id=None if seq is None else ReleaseId(f"release-{seq}"),
    )


def sealed(folding: Batch) -> list[BatchSealed]:
    return list(folding.emitted(BatchSealed))


def outcomes(folding: Batch) -> list[OutcomeSettled]:
    return list(folding.emitted(OutcomeSettled))


def begun(**configuration: Any) -> Batch:
    """A configured scenario whose release 0 serves."""
    folding = batch_folding(**({"batch_size": 2} | configuration))
    folding.take(a_head(0))
    return folding


def test_a_full_batch_is_its_samples_then_the_seal_that_names_the_head() -> None:
    folding = begun()
    first, second = an_experience(1), an_experience(2)
    assert folding.take(first) == ()
    said = folding.take(second)
    *samples, seal = emitted(said, TrainingSample) + emitted(said, BatchSealed)
    assert len(said) == 3
    assert [(each.index, each.experience) for each in samples] == [(0, first), (1, second)]
    assert {each.batch_id for each in samples} == {seal.batch_id}
    assert seal.experience_ids == (first.experience_id, second.experience_id)
    assert (seal.base_release_seq, seal.base_content_sha256, seal.batch_seq) == (0, content(0), 0)


def test_one_batch_is_in_flight_and_the_next_is_sealed_on_the_new_head() -> None:
    folding = begun(max_staleness=1)
    for number in range(4):
        folding.take(an_experience(number))
    (first,) = sealed(folding)
    folding.take(a_head(1))
    assert len(sealed(folding)) == 1, "the head moved, but the batch in flight has not ended"
    folding.take(a_settlement(first.batch_id, BatchState.TRAINED, 1))
    _, second = sealed(folding)
    assert (second.base_release_seq, second.batch_seq) == (1, 1)
    assert {each.receipt for each in outcomes(folding)} == {receipt_at(0), receipt_at(1)}


@pytest.mark.parametrize(
    ("state", "expected", "reason"),
    [
        (BatchState.TRAINED, OutcomeState.TRAINED, None),
        (BatchState.HELD, OutcomeState.TRAINED, None),
        (BatchState.WARMED_UP, OutcomeState.TRAINED, None),
        (BatchState.REJECTED, OutcomeState.DROPPED, OutcomeReason.CANDIDATE_REJECTED),
        (BatchState.FAILED, OutcomeState.DROPPED, OutcomeReason.TRAINING_FAILED),
    ],
)
def test_a_batch_ends_the_story_of_its_calls(
    state: BatchState, expected: OutcomeState, reason: OutcomeReason | None
) -> None:
    folding = begun(batch_size=1)
    folding.take(an_experience(1))
    (seal,) = sealed(folding)
    seq = 1 if state is BatchState.TRAINED else None
    folding.take(a_settlement(seal.batch_id, state, seq))
    (outcome,) = outcomes(folding)
    assert (outcome.state, outcome.reason, outcome.batch_id) == (expected, reason, seal.batch_id)
    assert outcome.release_id == (None if seq is None else "release-1")


def test_a_settlement_of_another_batch_or_again_changes_nothing() -> None:
    folding = begun(batch_size=1)
    folding.take(an_experience(1))
    (seal,) = sealed(folding)
    folding.take(a_settlement(BatchId("another"), BatchState.FAILED))
    assert outcomes(folding) == []
    folding.take(a_settlement(seal.batch_id, BatchState.FAILED))
    folding.take(a_settlement(seal.batch_id, BatchState.TRAINED, 1))
    assert len(outcomes(folding)) == 1
    assert folding.counted() == ["repeated_settlement"] * 2


def test_a_release_at_or_below_the_head_is_ignored() -> None:
    folding = begun(batch_size=1)
    folding.take(a_head(1))
    folding.take(a_head(1, serves=9))
    folding.take(a_head(0))
    folding.take(an_experience(1, 1))
    assert sealed(folding)[0].base_content_sha256 == content(1)


@pytest.mark.parametrize(("max_staleness", "is_stale"), [(0, True), (1, True), (2, False)])
def test_an_experience_is_stale_when_its_weights_lie_too_far_behind(
    max_staleness: int, is_stale: bool
) -> None:
    folding = begun(max_staleness=max_staleness)
    folding.take(an_experience(1, 0))
    folding.take(a_head(1))
    folding.take(a_head(2))
    folding.take(an_experience(2, 0))  # and one that comes later
    assert folding.reasons() == (
        dict.fromkeys(map(receipt_at, (1, 2)), OutcomeReason.STALE) if is_stale else {}
    )


def test_staleness_drops_one_sample_and_keeps_the_rest() -> None:
    folding = begun(max_staleness=0, batch_size=2)
    folding.take(a_head(1))
    folding.take(an_experience(1, 0))
    folding.take(an_experience(2, 1))
    folding.take(an_experience(3, 1))
    assert folding.reasons() == {receipt_at(1): OutcomeReason.STALE}
    assert len(sealed(folding)[0].experience_ids) == 2


def test_the_oldest_weights_of_a_sample_count() -> None:
    folding = begun(max_staleness=1)
    folding.take(a_head(1))
    folding.take(a_head(2))
    folding.take(an_experience(1, 0, 2))
    folding.take(an_experience(2, 1, 2))
    assert folding.reasons() == {receipt_at(1): OutcomeReason.STALE}


def test_after_a_rollback_the_restored_weights_are_fresh_and_the_others_stale() -> None:
    folding = begun(max_staleness=0, batch_size=9)
    folding.take(a_head(1))
    folding.take(a_head(2))
    folding.take(an_experience(1, 2))
    folding.take(a_head(3, serves=1, operation=Operation.ROLLBACK))
    folding.take(an_experience(2, 1))
    folding.take(an_experience(3, 2))
    folding.take(an_experience(4, 3))
    stale = {receipt_at(1): OutcomeReason.STALE, receipt_at(3): OutcomeReason.STALE}
    assert folding.reasons() == stale


def test_a_rollback_restores_the_line_that_its_target_had() -> None:
    folding = begun(max_staleness=1, batch_size=9)
    for seq in (1, 2, 3):
        folding.take(a_head(seq))
    folding.take(a_head(4, serves=1, operation=Operation.ROLLBACK))
    folding.take(an_experience(1, 0))  # one behind release 1
    folding.take(an_experience(2, 3))  # on no line
    assert folding.reasons() == {receipt_at(2): OutcomeReason.STALE}


def test_a_promoted_candidate_stands_on_the_line_of_its_own_base() -> None:
    folding = begun(max_staleness=1, batch_size=1)
    folding.take(an_experience(1, 0))
    folding.take(a_settlement(sealed(folding)[0].batch_id, BatchState.HELD, name="held"))
    folding.take(a_head(1))
    folding.take(a_head(2, operation=Operation.PROMOTE, candidate_id=CandidateId("held")))
    folding.take(an_experience(2, 1))  # release 1 is not on the line [0, 2]
    assert folding.reasons()[receipt_at(2)] is OutcomeReason.STALE
    folding.take(an_experience(3, 0))
    assert len(sealed(folding)) == 2


def test_equal_content_is_equally_fresh() -> None:
    folding = begun(max_staleness=0, batch_size=1)
    folding.take(a_head(1, serves=0))
    folding.take(an_experience(1, 0))
    assert len(sealed(folding)) == 1


def test_what_was_sampled_from_a_release_not_yet_told_of_waits_for_it() -> None:
    folding = begun(max_staleness=0, batch_size=1)
    folding.take(an_experience(1, 1))
    assert (sealed(folding), outcomes(folding)) == ([], [])
    folding.take(a_head(1))
    assert [each.base_release_seq for each in sealed(folding)] == [1]


def test_ids_of_another_tokenizer_are_foreign() -> None:
    folding = begun()
    folding.take(an_experience(1, tokenizer_digest=Sha256("00" * 32)))
    assert folding.reasons() == {receipt_at(1): OutcomeReason.FOREIGN_TOKENIZER}


def test_a_revision_counts_until_the_sealing_and_is_a_note_afterwards() -> None:
    folding = begun(batch_size=1, max_staleness=1)
    folding.take(an_experience(1))
    (first,) = folding.emitted(TrainingSample)
    late = an_experience(2)
    folding.take(late)  # waits: a batch is in flight
    revision = {**of(late), "reward": 0.25, "feedback": JsonBytes(b'"better"'), "report_id": "f2"}
    folding.take(an_experience_revised(**revision))
    folding.take(an_experience_revised(**(revision | of(first.experience))))
    folding.take(a_settlement(first.batch_id, BatchState.TRAINED, 1))
    _, second = folding.emitted(TrainingSample)
    assert (second.experience.reward, second.experience.feedback) == (0.25, b'"better"')
    assert second.experience.report_ids[-1] == "f2"
    assert [(each.state, each.notes) for each in outcomes(folding)] == [
        (OutcomeState.TRAINED, ("late_after_trained",))
    ]


def test_a_correction_after_the_training_is_a_note_on_a_call_that_keeps_its_state() -> None:
    folding = begun(batch_size=1)
    one = an_experience(1)
    folding.take(one)
    folding.take(a_settlement(sealed(folding)[0].batch_id, BatchState.TRAINED, 1))
    folding.take(an_experience_withdrawn(**of(one)))
    folding.take(an_experience_withdrawn(**of(one)))
    before, after = outcomes(folding)
    assert (before.notes, after.notes) == ((), ("late_after_trained",))
    assert (after.state, after.release_id) == (before.state, before.release_id)


def test_a_withdrawn_experience_is_dropped() -> None:
    folding = begun()
    one = an_experience(1)
    folding.take(one)
    folding.take(an_experience_withdrawn(**of(one)))
    folding.take(an_experience(2))
    assert folding.reasons() == {receipt_at(1): OutcomeReason.WITHDRAWN}
    assert sealed(folding) == []


def test_an_experience_without_reward_is_never_chosen_and_ends_as_such() -> None:
    folding = begun(batch_size=1, streams={"buffer_max_age_s": 3600})
    one = an_experience(1, reward=None)
    folding.take(one)
    folding.take(an_experience(2, reward=None))
    folding.take(an_experience_revised(**of(one), reward=0.5, feedback=None))
    assert [each.experience_ids for each in sealed(folding)] == [(one.experience_id,)]
    folding.tick(2 * HOUR_US)
    assert folding.reasons() == {receipt_at(2): OutcomeReason.NO_REWARD}


def test_what_waits_too_long_expires() -> None:
    folding = begun(streams={"buffer_max_age_s": 3600})
    folding.take(an_experience(1))
    folding.tick(HOUR_US - 1)
    assert outcomes(folding) == []
    folding.tick(1)
    assert folding.reasons() == {receipt_at(1): OutcomeReason.EXPIRED}


def test_a_full_buffer_drops_the_oldest() -> None:
    folding = begun(batch_size=9, streams={"buffer_experiences_max": 2})
    for number in range(4):
        folding.take(an_experience(number))
    assert folding.reasons() == dict.fromkeys(map(receipt_at, (0, 1)), OutcomeReason.BUFFER_OVERFLOW)


def test_an_experience_that_the_log_no_longer_holds_is_named_and_the_rest_is_sealed() -> None:
    folding = begun(batch_size=2)
    folding.take(an_experience(1))
    folding.truncated_below = len(folding.log)
    folding.take(an_experience(2))
    assert folding.reasons() == {receipt_at(1): OutcomeReason.LOG_TRUNCATED}
    assert sealed(folding) == []
    folding.take(an_experience(3))
    assert len(sealed(folding)) == 1


def test_a_retired_scenario_seals_nothing_and_settles_what_waits() -> None:
    folding = begun()
    folding.take(an_experience(1))
    folding.take(a_configuration(is_retired=True))
    folding.take(an_experience(2))
    retired = OutcomeReason.SCENARIO_RETIRED
    assert folding.reasons() == {receipt_at(1): retired, receipt_at(2): retired}


def test_a_scenario_that_trains_nothing_only_records() -> None:
    folding = begun(target=TrainingTarget.NONE)
    folding.take(an_experience(1))
    assert folding.reasons() == {receipt_at(1): OutcomeReason.RECORD_ONLY}


@pytest.mark.parametrize("by_session", [True, False])
def test_what_must_be_forgotten_enters_no_batch_whenever_it_comes(by_session: bool) -> None:
    folding = begun(batch_size=1)
    folding.take(an_experience(9))  # in flight: the others wait
    folding.take(an_experience(1, session=Session("gone")))
    erasure: ErasureRequested = an_erasure_requested(
        scenario=SCENARIO,
        session=Session("gone") if by_session else None,
        receipts=() if by_session else (receipt_at(1), receipt_at(2)),
    )
    folding.take(erasure)
    folding.take(an_experience(2, session=Session("gone")))
    folding.take(an_experience(3, session=Session("stays")))
    forgotten = OutcomeReason.FORGOTTEN
    assert folding.reasons() == {receipt_at(1): forgotten, receipt_at(2): forgotten}


def test_a_group_is_sealed_when_it_is_complete() -> None:
    folding = begun(recipe="group", batch_size=2)
    folding.take(an_experience(1, group="a"))
    folding.take(an_experience(2, group="b"))
    folding.take(an_experience(3, group=None))
    assert sealed(folding) == []
    folding.take(an_experience(4, group="a"))
    chosen = (an_experience(1).experience_id, an_experience(4).experience_id)
    assert [each.experience_ids for each in sealed(folding)] == [chosen]


def test_an_experience_that_comes_twice_is_counted() -> None:
    folding = begun()
    folding.take(an_experience(1))
    folding.take(an_experience(1))
    assert folding.counted() == ["repeated_experience"]
    assert sealed(folding) == []


def test_what_is_sealed_before_the_configuration_or_the_first_release_is_nothing() -> None:
    folding = batch_folding(batch_size=1)
    folding.take(an_experience(1))
    assert sealed(folding) == []
    folding.take(a_head(0))
    assert len(sealed(folding)) == 1


def test_the_content_of_a_batch_does_not_depend_on_times_and_places() -> None:
    quiet, busy = begun(), begun()
    busy.tick(HOUR_US)
    for folding in (quiet, busy):
        folding.take(an_experience(1))
        folding.take(an_experience(2))
    changed = begun()
    changed.take(an_experience(1))
    changed.take(an_experience(2, reward=0.5))
    digests = [sealed(each)[0].content_sha256 for each in (quiet, busy, changed)]
    assert digests[0] == digests[1] != digests[2]


def test_thirty_percent_stale_after_a_restart_are_not_offered_again() -> None:
    """CASES 12: the cursor is past them."""
    folding = begun(max_staleness=0, batch_size=7)
    folding.take(a_head(1))
    for number in range(10):
        folding.take(an_experience(number, 0 if number % 3 == 0 and number else 1))
    loaded = batch_folding(max_staleness=0, batch_size=7)
    loaded.state = batch_state.BatchState(load_recipe=loaded.state.load_recipe)
    for key in sorted(folding.stored, reverse=True):
        loaded.state.load(key, folding.stored[key])
    loaded.log = dict(folding.log)
    loaded.take(a_settlement(sealed(folding)[0].batch_id, BatchState.TRAINED, 2))
    for number in range(10):  # the same again, as a replay would bring them
        loaded.take(an_experience(number, 0 if number % 3 == 0 and number else 1))
    assert sealed(loaded) == []
    trained = {each.receipt for each in outcomes(loaded)}
    stale = {each.receipt for each in outcomes(folding)}
    assert (len(trained), len(stale)) == (7, 3)
    assert trained.isdisjoint(stale)


def test_a_batch_ended_in_a_way_not_known_yet_drops_its_calls_and_goes_on() -> None:
    folding = begun(batch_size=1)
    folding.take(an_experience(1))
    folding.take(a_settlement(sealed(folding)[0].batch_id, BatchState.UNSPECIFIED))
    folding.take(an_experience(2))
    assert folding.reasons() == {receipt_at(1): OutcomeReason.UNSPECIFIED}
    assert len(sealed(folding)) == 2
