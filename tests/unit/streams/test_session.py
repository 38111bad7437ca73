"""The session fold, rule by rule: STREAMS 10, 16 to 21, 30, and the cases 1, 7 and 8."""

from typing import Any

import pytest

from schemas.events import (
    CallOutcome,
    CaptureFault,
    ErasureRequested,
    ExperienceAssembled,
    ExperienceRevised,
    ExperienceWithdrawn,
    OutcomeReason,
    SamplingConstraint,
    TrainingTarget,
    WeightSpan,
)
from schemas.ids import (
    Receipt,
    ReportId,
    Route,
    ScenarioName,
    Session,
    mint_receipt,
    route_of_import,
    route_of_session,
)
from schemas.packed import JsonBytes, Mask, floats, tokens
from schemas.recipe import load_recipe
from streams import session
from streams.session_state import SessionState
from tests.builders import a_sampling, an_erasure_requested, an_experience_assembled
from tests.unit.streams.folding import (
    HOUR_US,
    KEY,
    SCENARIO,
    SESSION,
    START_US,
    Folding,
    a_call,
    a_configuration,
    a_report,
    an_answer,
    new_session_state,
    receipt_at,
    session_folding,
)

Sessions = Folding[SessionState]
QUESTIONS_MAX = 4
"""Of one step: for a report, for the calls it names, for those before them, and one more."""
ONE, TWO, THREE = receipt_at(1), receipt_at(2), receipt_at(3)


def made(folding: Sessions) -> list[ExperienceAssembled]:
    return list(folding.emitted(ExperienceAssembled))


def samples(folding: Sessions) -> list[tuple[list[int], list[int], float | None]]:
    return [(tokens(each.token_ids).tolist(), list(each.loss_mask), each.reward) for each in made(folding)]


# ---- one call, one report ----------------------------------------------------------------------------------


def test_a_call_and_its_report_become_one_experience() -> None:
    folding = session_folding()
    folding.take(a_call(1, [1, 2, 3], [7, 8]))
    folding.take(a_report("f1", ONE, score=0.5, feedback=JsonBytes(b'"good"'), metadata={"group": "g"}))
    (each,) = made(folding)
    assert samples(folding) == [([1, 2, 3, 7, 8], [0, 0, 0, 1, 1], 0.5)]
    assert floats(each.logprobs).tolist() == pytest.approx([0, 0, 0, -0.001001, -0.001002])
    assert floats(each.temperatures).tolist() == [1, 1, 1, 1, 1]
    assert (each.num_prompt_tokens, each.num_realigned_tokens, each.feedback) == (3, 0, b'"good"')
    assert (each.receipts, each.report_ids, each.group, each.session) == ((ONE,), ("f1",), "g", SESSION)
    assert (each.source.partition, each.source.offset, each.source.index) == (folding.partition, 2, 0)
    assert each.assembled_at_us == folding.log[2].time_us


def test_the_temperature_of_each_token_is_the_one_it_was_sampled_with() -> None:
    folding = session_folding()
    folding.take(a_call(1, [1], [7], sampling=a_sampling(temperature=0.5)))
    folding.take(a_call(2, [1, 7, 2], [8], sampling=a_sampling(temperature=0.25)))
    folding.take(a_report("f1", ONE, TWO))
    assert floats(made(folding)[0].temperatures).tolist() == [1, 0.5, 1, 0.25]


def test_the_releases_that_wrote_a_sample_are_named() -> None:
    folding = session_folding()
    spans = (WeightSpan(release_seq=3, num_tokens=1), WeightSpan(release_seq=5, num_tokens=1))
    folding.take(a_call(1, [1], [7, 8], weight_spans=spans))
    folding.take(a_call(2, [1, 7, 8], [8], weight_spans=(WeightSpan(release_seq=6, num_tokens=1),)))
    folding.take(a_report("f1", ONE, TWO))
    assert (made(folding)[0].release_seq_first, made(folding)[0].release_seq_last) == (3, 6)


def test_feedback_before_its_call_is_held_until_the_call_arrives() -> None:
    folding = session_folding()
    folding.take(a_report("f1", ONE))
    assert made(folding) == []
    folding.take(a_call(1))
    assert len(made(folding)) == 1


def test_a_call_without_feedback_ends_when_its_window_does() -> None:
    folding = session_folding(streams={"join_window_s": 3600})
    folding.take(a_call(1))
    folding.tick(HOUR_US - 1)
    assert folding.reasons() == {}
    folding.tick(1)
    assert folding.reasons() == {ONE: OutcomeReason.NO_FEEDBACK}


def test_a_report_without_reward_leaves_the_call_open_until_its_window_ends() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_call(2))
    folding.take(a_report("f1", ONE, score=None))
    folding.take(a_report("f2", TWO, score=None))
    folding.take(a_report("f3", TWO, score=1.0))
    folding.tick(25 * HOUR_US)
    assert folding.reasons() == {ONE: OutcomeReason.NO_REWARD}
    assert [each.receipts for each in made(folding)] == [(TWO,)]


def test_a_report_stamped_in_the_year_2100_expires_nothing() -> None:
    """STREAMS 10: time is the record's, not the payload's."""
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f1", TWO, reported_at_us=4_102_444_800_000_000))
    folding.tick(HOUR_US)
    assert (folding.reasons(), folding.refused()) == ({}, [])


def test_time_never_runs_backwards_in_a_partition() -> None:
    folding = session_folding(streams={"join_window_s": 3600})
    folding.take(a_call(1), START_US + HOUR_US)
    folding.take(a_call(2), START_US)  # a leader with another clock
    folding.tick(0)
    assert folding.state.now_us == START_US + HOUR_US


# ---- reasons ----------------------------------------------------------------------------------------------

FAULTS: list[tuple[dict[str, Any], OutcomeReason]] = [
    ({"is_opted_out": True}, OutcomeReason.OPTED_OUT),
    ({"outcome": CallOutcome.CLIENT_ABORTED}, OutcomeReason.CLIENT_ABORTED),
    ({"outcome": CallOutcome.UPSTREAM_FAILED}, OutcomeReason.UPSTREAM_FAILED),
    ({"capture_faults": (CaptureFault.TOKEN_GAP,)}, OutcomeReason.TOKEN_GAP),
    ({"capture_faults": (CaptureFault.NOT_TOKEN_EXACT,)}, OutcomeReason.NOT_TOKEN_EXACT),
    ({"prompt_token_ids": b""}, OutcomeReason.NOT_TOKEN_EXACT),
    ({"choices": ()}, OutcomeReason.NOT_TOKEN_EXACT),
    ({"choices": (an_answer([]),)}, OutcomeReason.NOT_TOKEN_EXACT),
    ({"weight_spans": ()}, OutcomeReason.NOT_TOKEN_EXACT),
    ({"sampling": a_sampling(temperature=0.0)}, OutcomeReason.GREEDY),
    ({"sampling": a_sampling(top_p=0.9)}, OutcomeReason.SAMPLING_TRUNCATED),
    ({"sampling": a_sampling(top_k=5)}, OutcomeReason.SAMPLING_TRUNCATED),
    ({"sampling": a_sampling(min_p=0.1)}, OutcomeReason.SAMPLING_TRUNCATED),
    ({"sampling": a_sampling(presence_penalty=0.1)}, OutcomeReason.SAMPLING_TRUNCATED),
    ({"sampling": a_sampling(frequency_penalty=0.1)}, OutcomeReason.SAMPLING_TRUNCATED),
    ({"sampling": a_sampling(repetition_penalty=1.1)}, OutcomeReason.SAMPLING_TRUNCATED),
    *[
        ({"sampling": a_sampling(constraints=(each,))}, OutcomeReason.SAMPLING_TRUNCATED)
        for each in SamplingConstraint
    ],
]


@pytest.mark.parametrize(("changes", "reason"), FAULTS)
def test_what_may_not_train_is_settled_at_once_and_its_feedback_is_accepted(
    changes: dict[str, Any], reason: OutcomeReason
) -> None:
    folding = session_folding()
    folding.take(a_call(1, **changes))
    assert folding.reasons() == {ONE: reason}
    folding.take(a_report("f1", ONE))
    assert (folding.refused(), made(folding)) == ([], [])
    assert folding.counted() == ["report_without_effect"]


@pytest.mark.parametrize(
    ("changes", "trains"),
    [
        ({"sampling": a_sampling(top_p=0.9)}, True),
        ({"sampling": a_sampling(temperature=0.0)}, True),
        ({"outcome": CallOutcome.CLIENT_ABORTED}, True),
        ({"is_opted_out": True}, False),
        ({"capture_faults": (CaptureFault.TOKEN_GAP,)}, False),
    ],
)
def test_a_recipe_learns_from_what_it_declares_it_can_correct(changes: dict[str, Any], trains: bool) -> None:
    folding = session_folding(recipe="correcting")
    folding.take(a_call(1, **changes))
    folding.take(a_report("f1", ONE))
    assert len(made(folding)) == int(trains)


def test_a_client_that_left_after_57_tokens_leaves_its_sample_out() -> None:
    """CASES 8: the ids seen are kept, feedback is accepted, the sample is left out and counted."""
    folding = session_folding()
    folding.take(a_call(1, [1], range(57), outcome=CallOutcome.CLIENT_ABORTED))
    folding.take(a_report("f1", ONE))
    assert folding.reasons() == {ONE: OutcomeReason.CLIENT_ABORTED}
    assert folding.refused() == []


def test_a_sample_that_is_too_long_is_dropped_and_what_it_continues_is_not() -> None:
    folding = session_folding(sample_tokens_max=6)
    folding.take(a_call(1, [1, 2], [7, 8]))
    folding.take(a_call(2, [1, 2, 7, 8, 3], [9, 9]))
    folding.take(a_report("f1", ONE, TWO))
    assert folding.reasons() == {TWO: OutcomeReason.TOO_LONG}
    assert samples(folding) == [([1, 2, 7, 8], [0, 0, 1, 1], 1.0)]


def test_a_call_that_the_log_no_longer_holds_is_named_so() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.truncated_below = len(folding.log)
    folding.take(a_report("f1", ONE))
    assert folding.reasons() == {ONE: OutcomeReason.LOG_TRUNCATED}


def test_a_report_that_the_log_no_longer_holds_is_refused() -> None:
    folding = session_folding()
    folding.take(a_report("f1", ONE))
    folding.truncated_below = len(folding.log)
    folding.take(a_call(1))
    folding.tick(25 * HOUR_US)
    assert folding.refused() == [(1, "log_truncated")]
    assert folding.reasons() == {ONE: OutcomeReason.NO_FEEDBACK}


def test_a_scenario_that_trains_nothing_only_records() -> None:
    folding = session_folding(target=TrainingTarget.NONE)
    folding.take(a_call(1))
    assert folding.reasons() == {ONE: OutcomeReason.RECORD_ONLY}


def test_a_retired_scenario_settles_what_is_pending_and_what_comes() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_call(2))
    folding.take(a_configuration(is_retired=True))
    assert folding.state.earliest_deadline_us() == folding.state.now_us, "so that a tick is written"
    folding.tick(0)
    folding.take(a_call(3))
    assert folding.reasons() == dict.fromkeys([ONE, TWO, THREE], OutcomeReason.SCENARIO_RETIRED)


def test_a_route_holds_no_more_calls_than_it_may_and_the_oldest_goes() -> None:
    """STREAMS 17."""
    folding = session_folding(streams={"max_calls_per_route": 2})
    for number in (1, 2, 3):
        folding.take(a_call(number))
    assert folding.reasons() == {ONE: OutcomeReason.BUFFER_OVERFLOW}


def test_a_call_that_may_be_a_repeat_forgotten_is_too_old() -> None:
    """STREAMS 17."""
    folding = session_folding(streams={"join_window_s": 3600, "dedup_window_s": 7200})
    folding.take(a_call(1))
    folding.tick(3 * HOUR_US)
    folding.take(a_call(1))
    assert folding.reasons() == {ONE: OutcomeReason.NO_FEEDBACK}
    assert folding.refused() == [(3, "too_old")]


@pytest.mark.parametrize("by_session", [True, False])
def test_what_must_be_forgotten_is_settled_now_and_when_it_comes(by_session: bool) -> None:
    """STREAMS 30."""
    folding = session_folding()
    folding.take(a_call(1))
    erasure: ErasureRequested = an_erasure_requested(
        scenario=SCENARIO, session=SESSION if by_session else None, receipts=() if by_session else (ONE, TWO)
    )
    folding.take(erasure, key=b"any")
    folding.take(a_call(2))
    folding.take(a_report("f1", ONE, TWO))
    assert folding.reasons() == {ONE: OutcomeReason.FORGOTTEN, TWO: OutcomeReason.FORGOTTEN}
    assert folding.emitted(ErasureRequested) == [erasure], "and told to the batch fold"
    assert made(folding) == []


def test_calls_and_reports_wait_for_their_scenarios_configuration() -> None:
    folding = Folding(new_session_state(session_folding().partition), session.step, session.needs)
    folding.partition = folding.state.partition
    folding.take(a_call(1), START_US)
    folding.take(a_call(2, is_opted_out=True))
    folding.take(a_report("f1", ONE, TWO))
    assert folding.outputs == []
    folding.take(a_configuration())
    assert [each.receipts for each in made(folding)] == [(ONE,)]
    assert folding.reasons() == {TWO: OutcomeReason.OPTED_OUT}


@pytest.mark.parametrize("credit", ["turn", "session"])
def test_what_hundreds_that_waited_want_from_the_log_is_asked_for_together(credit: str) -> None:
    """Each question begins the step anew: asked one by one, hundreds would take their square."""
    folding = Folding(new_session_state(session_folding().partition), session.step, session.needs)
    folding.partition = folding.state.partition
    folding.take(a_call(0), START_US)
    for number in range(1, 400):
        folding.take(a_call(number))
        folding.take(a_report(f"f{number}", receipt_at(number)))
    before = folding.num_questions
    folding.take(a_configuration(credit=credit))
    made_by = [each for experience in made(folding) for each in experience.receipts]
    assert sorted(made_by) == [receipt_at(number) for number in range(1 if credit == "turn" else 0, 400)]
    assert folding.num_questions - before <= QUESTIONS_MAX


@pytest.mark.parametrize("credit", ["turn", "session"])
def test_what_hundreds_that_expire_want_from_the_log_is_asked_for_together(credit: str) -> None:
    """Reports that waited for a second call in vain are applied to what came, all in one step."""
    folding = session_folding(credit=credit, streams={"orphan_window_s": 3600})
    for number in range(400):
        folding.take(a_call(number))
        folding.take(a_report(f"f{number}", receipt_at(number), receipt_at(1_000 + number)))
    before = folding.num_questions
    folding.tick(2 * HOUR_US)
    assert len(made(folding)) == 400
    assert folding.num_questions - before <= QUESTIONS_MAX


# ---- every wrong order: CASES 7 ---------------------------------------------------------------------------


def test_the_same_report_again_counts_once_and_other_content_conflicts() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE, score=1.0))
    folding.take(a_report("f1", ONE, score=1.0))
    folding.take(a_report("f1", ONE, score=0.0))
    assert len(made(folding)) == 1
    assert folding.counted() == ["repeated_report"]
    assert folding.refused() == [(4, "report_conflict")]


def test_equal_json_written_otherwise_is_the_same_report() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE, feedback=JsonBytes(b'{"a":1,"b":2.0}')))
    folding.take(a_report("f1", ONE, feedback=JsonBytes(b'{"b": 2, "a": 1.0}')))
    assert (folding.counted(), folding.refused()) == (["repeated_report"], [])


def test_the_same_call_again_is_counted() -> None:
    folding = session_folding()
    for _ in range(2):
        folding.take(a_call(1))
    folding.take(a_report("f1", ONE))
    folding.take(a_call(1))
    assert len(made(folding)) == 1
    assert folding.counted() == ["repeated_call", "repeated_call"]


def test_a_superseding_report_revises_and_there_is_one_label() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("up", ONE, score=1.0))
    folding.take(a_report("down", ONE, score=0.0, supersedes=ReportId("up")))
    (revised,) = folding.emitted(ExperienceRevised)
    (first,) = made(folding)
    assert (revised.experience_id, revised.reward, revised.report_id) == (first.experience_id, 0.0, "down")
    assert revised.receipts == (ONE,)


@pytest.mark.parametrize("correction_first", [True, False])
def test_a_correction_that_comes_before_what_it_corrects_wins_all_the_same(correction_first: bool) -> None:
    folding = session_folding()
    folding.take(a_call(1))
    up = a_report("up", ONE, score=1.0)
    down = a_report("down", ONE, score=0.0, supersedes=ReportId("up"))
    for report in (down, up) if correction_first else (up, down):
        folding.take(report)
    labels = [each.reward for each in [*made(folding), *folding.emitted(ExperienceRevised)]]
    assert labels[-1] == 0.0
    assert len(made(folding)) == 1


def test_of_two_corrections_the_later_in_the_log_wins() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    for name, score, supersedes in (("a", 1.0, None), ("b", 0.5, "a"), ("c", 0.25, "a")):
        folding.take(a_report(name, ONE, score=score, supersedes=supersedes))
    assert [each.reward for each in folding.emitted(ExperienceRevised)] == [0.5, 0.25]


def test_a_correction_of_an_unknown_report_takes_what_came_when_its_window_ends() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("down", ONE, score=0.0, supersedes=ReportId("never")))
    assert made(folding) == []
    folding.tick(25 * HOUR_US)
    assert [each.reward for each in made(folding)] == [0.0]
    assert folding.reasons() == {}, "the call was held for it"


def test_a_withdrawn_report_takes_its_experience_back() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE))
    folding.take(a_report("f2", ONE, score=None, supersedes=ReportId("f1"), is_withdrawal=True))
    (withdrawn,) = folding.emitted(ExperienceWithdrawn)
    assert (withdrawn.experience_id, withdrawn.receipts) == (made(folding)[0].experience_id, (ONE,))


def test_a_withdrawal_that_comes_first_waits_for_the_report() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f2", ONE, score=None, supersedes=ReportId("f1"), is_withdrawal=True))
    folding.take(a_report("f1", ONE))
    folding.tick(25 * HOUR_US)
    assert made(folding) == []
    assert folding.reasons() == {ONE: OutcomeReason.NO_FEEDBACK}


def test_a_correction_that_names_fewer_calls_withdraws_the_rest() -> None:
    """STREAMS 20: each experience that the new report does not speak of."""
    folding = session_folding()
    folding.take(a_call(1, [1], [7]))
    folding.take(a_call(2, [2], [7]))
    folding.take(a_report("f1", ONE, TWO))
    folding.take(a_report("f2", TWO, THREE, score=0.0, supersedes=ReportId("f1")))
    folding.take(a_call(3, [3], [7]))
    assert [each.receipts for each in folding.emitted(ExperienceRevised)] == [(TWO,)]
    assert [each.receipts for each in folding.emitted(ExperienceWithdrawn)] == [(ONE,)]
    assert [each.receipts for each in made(folding)][-1] == (THREE,)


def test_feedback_on_a_call_that_never_comes_is_refused_in_the_end() -> None:
    folding = session_folding()
    folding.take(a_report("f1", ONE))
    folding.tick(24 * HOUR_US - 1)
    assert folding.refused() == []
    folding.tick(1)
    assert folding.refused() == [(1, "orphan_expired")]


def test_there_is_room_for_so_many_waiting_reports() -> None:
    folding = session_folding(streams={"orphans_max": 2})
    for number in (1, 2, 3):
        folding.take(a_report(f"f{number}", receipt_at(number)))
    assert folding.refused() == [(3, "orphan_overflow")]


def test_a_call_of_another_scenario_is_as_unknown_as_one_never_issued() -> None:
    folding = session_folding()
    other = ScenarioName("another")
    folding.take(a_configuration(scenario=other))
    folding.take(a_call(1, scenario=other))
    folding.take(a_report("f1", ONE))
    folding.take(a_report("f2", TWO))
    folding.tick(25 * HOUR_US)
    assert folding.refused() == [(3, "orphan_expired"), (4, "orphan_expired")]


def test_a_second_report_on_a_credited_call_is_refused() -> None:
    """STREAMS 19."""
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE))
    folding.take(a_report("f2", ONE))
    assert folding.refused() == [(3, "already_credited")]


def test_a_report_on_several_calls_waits_for_all_and_then_takes_what_came() -> None:
    """STREAMS 19."""
    folding = session_folding(
        streams={"join_window_s": 3600, "orphan_window_s": 7200, "dedup_window_s": 7200}
    )
    folding.take(a_call(1, [1], [7]))
    folding.take(a_report("f1", ONE, TWO))
    folding.tick(2 * HOUR_US - 1_000)
    assert (made(folding), folding.reasons()) == ([], {})
    folding.tick(1_000)
    assert [each.receipts for each in made(folding)] == [(ONE,)]


def test_a_quoted_call_that_comes_too_late_is_credited_as_a_sample_of_its_own() -> None:
    """STREAMS 19."""
    folding = session_folding(streams={"orphan_window_s": 3600})
    folding.take(a_call(1, [1], [7]))
    folding.take(a_report("f1", ONE, TWO, score=0.5))
    folding.tick(HOUR_US)
    folding.take(a_call(2, [1, 7], [8]))
    assert samples(folding) == [([1, 7], [0, 1], 0.5), ([1, 7, 8], [0, 0, 1], 0.5)]


# ---- place: STREAMS 21 -------------------------------------------------------------------------------------


def test_feedback_must_be_keyed_by_the_route_of_every_call_it_names() -> None:
    folding = session_folding()
    stranger = receipt_at(5, session=Session("another"))
    folding.take(a_report("f1", ONE), key=b"wrong")
    folding.take(a_report("f2", ONE, stranger))
    folding.take(a_report("f3", ONE, route=Route("00" * 8)))
    assert [reason for _, reason in folding.refused()] == ["route_mismatch"] * 3


def test_feedback_in_the_wrong_partition_is_refused() -> None:
    folding = session_folding()
    folding.state.partition = (folding.partition + 1) % 4
    folding.take(a_report("f1", ONE))
    assert folding.refused() == [(1, "wrong_partition")]


def test_an_imported_call_is_reported_on_by_its_own_id() -> None:
    route = route_of_import(SCENARIO, "mine-1")
    folding = session_folding(route=route)
    receipt = mint_receipt(SCENARIO, route, time_ms=START_US // 1_000, nonce=b"123456", key=KEY)
    folding.take(a_report("f1", Receipt("mine-1"), route=route))
    folding.take(a_call(1, route=route, receipt=receipt, imported_id="mine-1"))
    folding.take(a_call(2, route=route, receipt=receipt, imported_id="mine-1"))
    assert [each.receipts for each in made(folding)] == [(receipt,)]


@pytest.mark.parametrize(
    "changes",
    [
        {"score": float("nan")},
        {"score": 1e9},
        {"report_id": " "},
        {"references": (ONE, ONE)},
        {"part": 1, "num_parts": 1},
        {"supersedes": "f1"},
        {"is_withdrawal": True},
        {"supersedes": "with\0zero"},
    ],
)
def test_feedback_on_kafka_passes_the_same_checks(changes: dict[str, Any]) -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE).__class__(**{**fields_of(a_report("f1", ONE)), **changes}))
    assert folding.refused() == [(2, "bad_report")]


def fields_of(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__slots__}


@pytest.mark.parametrize(
    ("score", "metadata"), [(None, {"task": 1}), (1.0, None), (1.0, {"other": 1}), (1.0, [])]
)
def test_feedback_must_hold_what_the_recipe_requires(score: float | None, metadata: Any) -> None:
    folding = session_folding(recipe="strict")
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE, score=score, metadata=metadata))
    folding.take(a_report("f2", ONE, score=1.0, metadata={"task": 1}))
    assert folding.refused() == [(2, "bad_report")]
    assert len(made(folding)) == 1


def test_feedback_that_is_no_json_is_refused() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE, feedback=JsonBytes(b"{")))
    assert folding.refused() == [(2, "bad_json")]


def test_what_belongs_to_another_topic_is_refused() -> None:
    folding = session_folding()
    folding.take(an_experience_assembled())
    assert folding.refused() == [(1, "unexpected_event")]


def test_a_call_whose_receipt_is_none_is_refused() -> None:
    folding = session_folding()
    folding.take(a_call(1, receipt=Receipt("rec_nothing")))
    assert folding.refused() == [(1, "unknown_receipt")]


def test_a_scenario_whose_options_its_recipe_cannot_take_is_refused_and_the_former_stays() -> None:
    folding = session_folding()
    folding.state.load_recipe = load_recipe
    folding.take(a_configuration(recipe="tests.unit.streams.recipes:ScoreRecipe", batch_size=-1))
    folding.take(a_configuration(recipe="tests.unit.streams.recipes:Nobody"))
    folding.take(a_configuration(recipe="tests.unit.streams.recipes:RECIPES"))
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE))
    assert folding.refused() == [(1, "bad_options"), (2, "bad_path"), (3, "bad_recipe")]
    assert len(made(folding)) == 1


# ---- choices -----------------------------------------------------------------------------------------------


def test_a_report_trains_the_first_answer_unless_it_names_another() -> None:
    answers = (an_answer([7], 1, 0), an_answer([8], 2, 1))
    for metadata, answer in ((None, 7), ({"choice": 1}, 8)):
        folding = session_folding()
        folding.take(a_call(1, [1], choices=answers))
        folding.take(a_report("f1", ONE, metadata=metadata))
        assert samples(folding) == [([1, answer], [0, 1], 1.0)]


def test_an_answer_that_is_not_there_is_refused() -> None:
    folding = session_folding()
    folding.take(a_call(1))
    folding.take(a_report("f1", ONE, metadata={"choice": 3}))
    assert folding.refused() == [(2, "bad_choice")]
    assert made(folding) == []


def test_a_conversation_that_continued_the_second_answer_trains_that() -> None:
    folding = session_folding(credit="session")
    folding.take(a_call(1, [1], choices=(an_answer([7], 1, 0), an_answer([8], 2, 1))))
    folding.take(a_call(2, [1, 8, 2], [9]))
    folding.take(a_report("f1", TWO))
    assert samples(folding) == [([1, 8, 2, 9], [0, 1, 0, 1], 1.0)]


# ---- credit ------------------------------------------------------------------------------------------------


def test_with_credit_turn_only_the_quoted_calls_are_credited() -> None:
    folding = session_folding()
    folding.take(a_call(1, [1], [7]))
    folding.take(a_call(2, [1, 7, 2], [8]))
    folding.take(a_report("f1", TWO))
    assert samples(folding) == [([1, 7, 2, 8], [0, 0, 0, 1], 1.0)]
    folding.take(a_report("f2", ONE, score=0.0))
    assert samples(folding)[1:] == [([1, 7], [0, 1], 0.0)]


def test_with_credit_session_all_turns_up_to_the_quoted_one_are_credited_once() -> None:
    folding = session_folding(credit="session")
    for number in (1, 2, 3, 4):
        history = [each for earlier in range(1, number) for each in (earlier, 10 + earlier)]
        folding.take(a_call(number, [*history, number], [10 + number]))
    folding.take(a_report("f1", TWO, score=0.5))
    folding.take(a_report("f2", receipt_at(4), score=1.0))
    assert [(each.receipts, each.reward) for each in made(folding)] == [
        ((ONE, TWO), 0.5),
        ((THREE, receipt_at(4)), 1.0),
    ]
    assert [sum(each.loss_mask) for each in made(folding)] == [2, 2]


def test_a_turn_that_arrives_after_the_report_that_covers_it_is_credited_at_once() -> None:
    """STREAMS 19."""
    folding = session_folding(credit="session")
    folding.take(a_call(2, [1, 7, 2], [8]))
    folding.take(a_report("f1", TWO, score=0.5))
    folding.take(a_call(3, [3], [9]))
    folding.take(a_call(1, [1], [7]))
    assert [(each.receipts, each.reward) for each in made(folding)] == [((TWO,), 0.5), ((ONE,), 0.5)]


def untagged(number: int, prompt: list[int], answer: list[int]) -> Any:
    return a_call(number, prompt, answer, session=None)


def test_an_untagged_session_is_the_chain_of_ancestors_and_strangers_share_nothing() -> None:
    """STREAMS 18: both ask [1, 2]; only one of them goes on."""
    home = route_of_session(SCENARIO, Session("untagged"))
    folding = session_folding(credit="session", route=home)
    mine, yours = untagged(1, [1, 2], [7]), untagged(2, [1, 2], [8])
    last = untagged(3, [1, 2, 7, 3], [9])
    for call in (mine, yours, last):
        folding.take(call)
    folding.take(a_report("f1", last.receipt, route=home))
    assert [each.receipts for each in made(folding)] == [(mine.receipt, last.receipt)]
    folding.tick(25 * HOUR_US)
    assert folding.reasons() == {yours.receipt: OutcomeReason.NO_FEEDBACK}


def test_an_ancestor_that_arrives_late_is_credited_and_a_stranger_is_not() -> None:
    home = route_of_session(SCENARIO, Session("untagged"))
    folding = session_folding(credit="session", route=home)
    mine, yours = untagged(1, [1, 2], [7]), untagged(2, [1, 2], [8])
    last = untagged(3, [1, 2, 7, 3], [9])
    folding.take(last)
    folding.take(a_report("f1", last.receipt, route=home))
    folding.take(yours)
    folding.take(mine)
    assert [each.receipts for each in made(folding)] == [(last.receipt,), (mine.receipt,)]


def test_a_retry_of_the_same_request_is_another_call_and_the_quoted_one_counts() -> None:
    folding = session_folding(credit="session")
    folding.take(a_call(1, [1], [7]))
    folding.take(a_call(2, [1], [7]))
    folding.take(a_call(3, [1, 7, 2], [8]))
    folding.take(a_report("f1", TWO, THREE))
    first, second = made(folding)
    assert (first.receipts, first.loss_mask) == ((TWO, THREE), Mask(b"\0\1\0\1"))
    assert (second.receipts, second.loss_mask) == ((ONE,), Mask(b"\0\1"))


# ---- CASES 1 -----------------------------------------------------------------------------------------------

QUESTION, THINKING, ANSWER, NEXT_QUESTION, NEXT_ANSWER = [1, 2], [30, 31, 32], [40, 41], [3], [50, 51]


def test_thinking_that_the_client_removes_is_trained_once_in_a_sample_of_its_own() -> None:
    folding = session_folding(credit="session")
    folding.take(a_call(1, QUESTION, THINKING + ANSWER))
    folding.take(a_call(2, QUESTION + ANSWER + NEXT_QUESTION, NEXT_ANSWER))
    folding.take(a_report("f1", TWO))
    second = ([*QUESTION, *ANSWER, *NEXT_QUESTION, *NEXT_ANSWER], [0] * 5 + [1] * 2, 1.0)
    first = ([*QUESTION, *THINKING, *ANSWER], [0] * 2 + [1] * 5, 1.0)
    assert sorted(samples(folding)) == sorted([first, second])


def test_thinking_that_the_client_keeps_is_one_sample_with_every_token_once() -> None:
    folding = session_folding(credit="session")
    folding.take(a_call(1, QUESTION, THINKING + ANSWER))
    folding.take(a_call(2, QUESTION + THINKING + ANSWER + NEXT_QUESTION, NEXT_ANSWER))
    folding.take(a_report("f1", TWO))
    (only,) = made(folding)
    assert sum(only.loss_mask) == len(THINKING + ANSWER) + len(NEXT_ANSWER)
