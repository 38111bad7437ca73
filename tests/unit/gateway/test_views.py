from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import views as views_module
from gateway.projection import Seen
from gateway.views import Views
from schemas.codec import encode
from schemas.events import Event, Operation, OutcomeReason, OutcomeState
from schemas.ids import BatchId, CandidateId, Receipt, ReleaseId, ReportId, Sha256
from schemas.packed import OriginalBytes
from schemas.records import Place, Record
from schemas.topics import CANDIDATES, SERVING
from tests.builders import (
    SCENARIO,
    a_candidate_evaluated,
    a_candidate_trained,
    a_feedback_reported,
    a_model_swapped,
    a_receipt,
    a_release_published,
    a_report_accepted,
    a_training_failed,
    an_event_rejected,
    an_inference_completed,
    an_outcome_settled,
)


@pytest.fixture
def views(tmp_path: Path) -> Iterator[Views]:
    opened = Views(tmp_path)
    yield opened
    opened.close()


def seen(*events: Event, first: int = 0) -> list[Seen]:
    return [
        Seen(
            record=Record(
                topic="any",
                partition=3,
                offset=first + number,
                key=None,
                value=None,
                headers=(),
                timestamp_us=0,
            ),
            event=event,
        )
        for number, event in enumerate(events)
    ]


@pytest.mark.parametrize("is_outcome_first", [True, False])
async def test_a_call_is_pending_until_its_outcome_whichever_is_read_first(
    views: Views, is_outcome_first: bool
) -> None:
    call = an_inference_completed()
    outcome = an_outcome_settled(
        receipt=call.receipt, state=OutcomeState.DROPPED, reason=OutcomeReason.NO_FEEDBACK
    )
    if not is_outcome_first:
        await views.apply(seen(call), {Place("any", 3): 1})
        assert await views.num_pending(call.scenario) == 1
        assert await views.outcome(call.receipt) is None
    await views.apply(seen(*([outcome, call] if is_outcome_first else [outcome])), {})
    assert await views.num_pending(call.scenario) == 0
    found = await views.outcome(call.receipt)
    assert found is not None
    assert (found["state"], found["reason"]) == ("dropped", "no_feedback")
    assert await views.outcomes_by_reason(call.scenario) == {"no_feedback": 1}


async def test_what_is_read_twice_is_shown_once(views: Views) -> None:
    call, report = an_inference_completed(), a_feedback_reported(references=(a_receipt(),))
    for first in (5, 9):
        await views.apply(seen(call, report, first=first), {Place("any", 3): first + 2})
    found = await views.call(call.receipt)
    assert found is not None
    assert found["offset"] == 5
    assert len(await views.reports(a_receipt())) == 1
    assert await views.positions() == {Place("any", 3): 11}


async def test_no_text_of_a_call_or_a_report_is_kept(views: Views, tmp_path: Path) -> None:
    secret = b"the text nobody may find"
    quoted = b'"' + secret + b'"'
    await views.apply(
        seen(
            an_inference_completed(request=quoted, response=quoted),
            a_feedback_reported(feedback=quoted, metadata=b'{"a":' + quoted + b"}"),
        ),
        {},
    )
    assert not any(secret in path.read_bytes() for path in tmp_path.iterdir())


async def test_the_first_content_keeps_a_report_id(views: Views) -> None:
    first = a_report_accepted(report_id=ReportId("r"), content_sha256=Sha256("1" * 64))
    other = a_report_accepted(report_id=ReportId("r"), content_sha256=Sha256("2" * 64))
    await views.note([first])
    await views.apply(seen(other, first), {})
    taken = await views.taken(first.scenario, [ReportId("r"), ReportId("s")])
    assert {name: found.content_sha256 for name, found in taken.items()} == {"r": "1" * 64}


async def test_the_oldest_calls_go_when_the_table_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_module, "PRUNE_EVERY", 10)
    views = Views(tmp_path, rows_max=20)
    receipts = [a_receipt(number) for number in range(100)]
    for number, receipt in enumerate(receipts):
        await views.apply(seen(an_inference_completed(receipt=receipt), first=number), {})
    kept = [receipt for receipt in receipts if await views.call(receipt) is not None]
    assert kept == receipts[-len(kept) :]
    assert 20 <= len(kept) <= 30
    views.close()


async def test_views_are_remembered_and_begun_anew_for_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = an_inference_completed()
    first = Views(tmp_path)
    await first.apply(seen(call), {Place("any", 3): 1})
    first.close()
    again = Views(tmp_path)
    assert await again.call(call.receipt) is not None
    again.close()
    monkeypatch.setattr(views_module, "VERSION", 10_000)
    newer = Views(tmp_path)
    assert await newer.call(call.receipt) is None
    assert await newer.positions() == {}
    newer.close()


async def test_the_head_is_the_release_of_the_highest_number(views: Views) -> None:
    releases = [
        a_release_published(release_seq=seq, release_id=ReleaseId(str(seq)), operation=Operation.TRAINING)
        for seq in (1, 0, 2)
    ]
    await views.apply(seen(*releases), {})
    head = await views.head(SCENARIO)
    assert head is not None
    assert head["release_seq"] == 2
    assert [row["release_seq"] for row in await views.releases(SCENARIO)] == [2, 1, 0]
    assert await views.head("elsewhere") is None
    assert await views.call(Receipt("unknown")) is None


async def test_a_candidate_has_the_metrics_of_its_training_and_of_its_evaluation_which_wins(
    views: Views,
) -> None:
    one, other = CandidateId("one"), CandidateId("other")
    await views.apply(
        seen(
            a_candidate_trained(candidate_id=one, scenario=SCENARIO, metrics={"loss": 2.0, "kl": 0.1}),
            a_candidate_trained(candidate_id=other, scenario=SCENARIO, metrics={"loss": 3.0}),
            a_candidate_evaluated(candidate_id=one, scenario=SCENARIO, metrics={"loss": 1.0, "score": 5.0}),
        ),
        {},
    )
    assert await views.metrics(SCENARIO) == {
        "one": {"loss": 1.0, "kl": 0.1, "score": 5.0},
        "other": {"loss": 3.0},
    }
    assert await views.metrics("elsewhere") == {}


async def test_a_report_taken_here_gets_its_place_when_the_log_tells_of_it_and_keeps_the_first(
    views: Views,
) -> None:
    report = a_feedback_reported(references=(a_receipt(),))
    await views.note([], [report])
    assert [row["place"] for row in await views.report(SCENARIO, report.report_id)] == [None]
    for first in (5, 9):
        await views.apply(seen(report, first=first), {})
    (row,) = await views.reports(a_receipt())
    assert (row["place"]["partition"], row["place"]["offset"]) == (3, 5)


async def test_a_batch_is_found_by_its_id_and_its_candidates_with_what_became_of_it(views: Views) -> None:
    trained, failed = a_candidate_trained(), a_training_failed(batch_id=BatchId("failed"))
    swapped = a_model_swapped()
    await views.apply(seen(trained, failed, swapped, first=5), {})
    for name in (trained.batch_id, trained.candidate_id):
        assert await views.batch_named(name) == {"scenario": SCENARIO, "batch_id": trained.batch_id}
    assert await views.batch_named("failed") == {"scenario": SCENARIO, "batch_id": "failed"}
    assert await views.batch_named("unheard of") is None
    training, failure = await views.training(trained.batch_id), await views.failure("failed")
    assert training is not None
    assert failure is not None
    assert (training["place"]["offset"], training["base_release_id"]) == (5, trained.base_release_id)
    assert (failure["place"]["offset"], failure["detail"]) == (6, failed.detail)
    assert await views.training_numbered(SCENARIO, trained.batch_seq) == training
    assert await views.training_numbered(SCENARIO, trained.batch_seq + 1) is None
    assert [swap["place"]["offset"] for swap in await views.swaps(swapped.release_id)] == [7]
    await views.forget([CANDIDATES, SERVING])
    assert await views.batch_named(trained.batch_id) is None
    assert await views.swaps(swapped.release_id) == []


def refusal_at(report: Event, offset: int) -> Event:
    return an_event_rejected(
        reason="already_credited",
        source_partition=3,
        source_offset=offset,
        value=OriginalBytes(encode(report)),
    )


@pytest.mark.parametrize("is_refusal_first", [True, False])
async def test_a_refused_report_says_so_whichever_is_read_first(views: Views, is_refusal_first: bool) -> None:
    report = a_feedback_reported(report_id=ReportId("second"))
    in_log, refused = seen(report, first=8), seen(refusal_at(report, 8))
    for part in (refused, in_log) if is_refusal_first else (in_log, refused):
        await views.apply(part, {})
    (shown,) = await views.reports(report.references[0])
    assert shown["refusal"]["reason"] == "already_credited"
    assert shown["place"]["offset"] == 8


async def test_a_report_that_was_taken_is_not_the_refused_one_of_its_name(views: Views) -> None:
    report = a_feedback_reported()
    await views.apply([*seen(report, first=4), *seen(report, first=9), *seen(refusal_at(report, 9))], {})
    (shown,) = await views.reports(report.references[0])
    assert (shown["refusal"], shown["place"]["offset"]) == (None, 4)


async def test_a_refused_report_that_is_sent_again_is_a_report_again(views: Views) -> None:
    report = a_feedback_reported()
    await views.apply([*seen(report, first=4), *seen(refusal_at(report, 4)), *seen(report, first=9)], {})
    (shown,) = await views.reports(report.references[0])
    assert (shown["refusal"], shown["place"]["offset"]) == (None, 9)
