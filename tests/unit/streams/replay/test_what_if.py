"""A replay with other options: exactly the samples that the rules say, counted here without a fold."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from schemas.errors import RejectedError
from schemas.events import (
    BatchSealed,
    Event,
    ExperienceAssembled,
    Operation,
    OutcomeReason,
    OutcomeState,
    ScenarioConfigured,
    TrainingSample,
)
from schemas.ids import Session
from schemas.topics import EXPERIENCE, TRAINING, key_of
from streams.outputs import Timed
from streams.replay.change import NO_CHANGE, Change, changed, read_options
from streams.replay.difference import Comparison
from streams.replay.plan import BATCHES, SESSIONS, Facts
from tests.builders import an_erasure_requested
from tests.unit.streams.folding import SCENARIO, START_US, a_call, a_configuration, a_report, receipt_at
from tests.unit.streams.recipes import load
from tests.unit.streams.replay.replaying import Replayed, replayed
from tests.unit.streams.test_batch import a_head, an_experience

SECOND_US = 1_000_000


def placed(events: Sequence[tuple[int, Event]]) -> list[Timed]:
    return [
        Timed(event=event, time_us=START_US + at_s * SECOND_US, partition=0, offset=offset, key=key_of(event))
        for offset, (at_s, event) in enumerate(events)
    ]


def sampled_before(num_releases: int, chance: Random) -> tuple[list[Timed], list[Timed], dict[str, int]]:
    """Calls of their own sessions, each sampled some releases ago; heads that advance meanwhile.

    Gives both logs, and for each receipt how far behind the head it was when its report came.
    """
    calls: list[tuple[int, Event]] = [(0, a_configuration(batch_size=1))]
    heads: list[tuple[int, Event]] = [(0, a_configuration(batch_size=1)), (0, a_head(0))]
    behind: dict[str, int] = {}
    for seq in range(1, num_releases + 1):
        at_s = 100 * seq
        heads.append((at_s, a_head(seq, operation=Operation.TRAINING)))
        # one experience between two heads: nothing waits while the head moves, and so is judged twice
        age = chance.randint(0, min(3, seq))
        call = a_call(seq, session=Session(f"s{seq}"))
        call = replace(call, weight_spans=(replace(call.weight_spans[0], release_seq=seq - age),))
        calls.append((at_s + 10, call))
        calls.append((at_s + 20, a_report(f"r{seq}", call.receipt, route=call.route)))
        behind[call.receipt] = age
    return placed(calls), placed(heads), behind


def with_staleness(folder: Path, seed: int, max_staleness: int) -> tuple[Replayed, dict[str, int]]:
    calls, heads, behind = sampled_before(12, Random(seed))
    facts = Facts(live_batches=frozenset(), releases={SCENARIO: frozenset(range(13))})
    change = Change(options={"max_staleness": max_staleness})
    return replayed(folder, [calls], [heads], change=change, facts=facts), behind


@pytest.mark.parametrize("max_staleness", [0, 1, 2, 5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_another_staleness_window_trains_exactly_what_lies_within_it(
    tmp_path: Path, seed: int, max_staleness: int
) -> None:
    again, behind = with_staleness(tmp_path, seed, max_staleness)
    samples: list[TrainingSample] = again.of(BATCHES, TRAINING, TrainingSample)
    trained = {receipt for each in samples for receipt in each.experience.receipts}
    assert trained == {receipt for receipt, age in behind.items() if age <= max_staleness}
    stale = {each.receipt for each in again.outcomes() if each.reason is OutcomeReason.STALE}
    assert stale == behind.keys() - trained
    assert len(set(behind.values())) > 2, "some of each age"


def test_the_comparison_names_what_a_narrower_window_loses_and_why(tmp_path: Path) -> None:
    wide, behind = with_staleness(tmp_path / "wide", 1, 5)
    narrow, _ = with_staleness(tmp_path / "narrow", 1, 0)
    lost = sorted(receipt for receipt, age in behind.items() if age > 0)
    for live, again, what, why in ((wide, narrow, "vanishes", "stale"), (narrow, wide, "appears", "stale")):
        with Comparison(tmp_path / f"{what}.sqlite") as both:
            both.take("live", [*live.of(BATCHES, TRAINING, TrainingSample), *live.outcomes()])
            both.take("replay", [*again.of(BATCHES, TRAINING, TrainingSample), *again.outcomes()])
            found = [each for each in both.differing() if each.what != "moves"]
        assert sorted(receipt for each in found for receipt in each.receipts) == lost
        assert {(each.what, each.why) for each in found} == {(what, why)}


def test_session_credit_makes_one_sample_of_what_turn_credit_leaves_out(tmp_path: Path) -> None:
    """Ten sessions of three turns, a report on the last: by the turn one call each, by the session all."""
    calls: list[tuple[int, Event]] = [(0, a_configuration(batch_size=2))]
    for number in range(10):
        session, tokens = Session(f"s{number}"), [number + 1]
        for turn in range(3):
            call = a_call(3 * number + turn, tokens, [50 + turn], session=session)
            tokens = [*tokens, 50 + turn]
            calls.append((10 * number, call))
        calls.append((10 * number + 5, a_report(f"r{number}", call.receipt, route=call.route)))
    heads = placed([(0, a_configuration(batch_size=2)), (0, a_head(0))])
    facts = Facts(live_batches=frozenset(), releases={SCENARIO: frozenset({0})})
    for credit, num_calls in (("turn", 1), ("session", 3)):
        change = Change(options={"credit": credit})
        again = replayed(tmp_path / credit, [placed(calls)], [heads], change=change, facts=facts)
        samples: list[TrainingSample] = again.of(BATCHES, TRAINING, TrainingSample)
        assert len(samples) == 10
        assert {len(each.experience.receipts) for each in samples} == {num_calls}
        assert {sum(each.experience.loss_mask) for each in samples} == {num_calls}


def test_a_batch_ends_with_the_next_release_or_at_once_when_there_is_none(tmp_path: Path) -> None:
    """STREAMS 29: six experiences of batch size one, one release in the middle."""
    calls: list[tuple[int, Event]] = [(0, a_configuration(batch_size=1))]
    for number in range(6):
        call = a_call(number, session=Session(f"s{number}"))
        calls += [(10 * number, call), (10 * number, a_report(f"r{number}", call.receipt, route=call.route))]
    heads = placed([(0, a_configuration(batch_size=1)), (0, a_head(0)), (35, a_head(1))])
    facts = Facts(live_batches=frozenset(), releases={SCENARIO: frozenset({0, 1})})
    change = Change(options={"max_staleness": 9})
    again = replayed(tmp_path, [placed(calls)], [heads], change=change, facts=facts)
    sealed: list[BatchSealed] = again.of(BATCHES, TRAINING, BatchSealed)
    assert [each.base_release_seq for each in sealed] == [0, 1, 1, 1, 1, 1]
    settled = [each for each in again.outcomes() if each.state is OutcomeState.TRAINED]
    assert [each.release_id for each in settled] == ["release-1", None, None, None, None, None]


def test_what_is_erased_anywhere_is_forgotten_from_the_start(tmp_path: Path) -> None:
    """STREAMS 30: in both stages; the batches around it go on."""
    made = [an_experience(number) for number in range(4)]
    heads: list[Event] = [a_configuration(batch_size=1), a_head(0), *made]
    erased = an_erasure_requested(scenario=SCENARIO, session=None, receipts=made[1].receipts)
    call = a_call(9)
    calls: list[Event] = [a_configuration(), call, a_report("r", call.receipt)]
    erased_call = an_erasure_requested(scenario=SCENARIO, session=None, receipts=(receipt_at(9),))
    facts = Facts(
        erasures=(erased, erased_call), live_batches=frozenset(), releases={SCENARIO: frozenset({0})}
    )
    again = replayed(
        tmp_path,
        [placed([(0, event) for event in calls])],
        [placed([(0, event) for event in heads])],
        facts=facts,
    )
    assert again.of(SESSIONS, EXPERIENCE, ExperienceAssembled) == []
    samples: list[TrainingSample] = again.of(BATCHES, TRAINING, TrainingSample)
    assert [each.experience.experience_id for each in samples] == [
        each.experience_id for at, each in enumerate(made) if at != 1
    ]
    reasons = {each.receipt: each.reason for each in again.outcomes()}
    assert reasons[made[1].receipts[0]] is reasons[receipt_at(9)] is OutcomeReason.FORGOTTEN


def test_a_change_is_told_to_folds_in_the_logs_own_words() -> None:
    """What the log says of other options and windows stays."""
    configured = a_configuration(batch_size=3, streams={"join_window_s": 60})
    change = Change(recipe="group", options={"streams.orphan_window_s": 7})
    told = changed(configured, change, load)
    assert isinstance(told, ScenarioConfigured)
    assert (told.recipe, told.recipe_digest != configured.recipe_digest) == ("group", True)
    limits = {"join_window_s": 60, "orphan_window_s": 7}
    assert json.loads(told.options) == {"recipe": {"batch_size": 3}, "streams": limits}
    assert changed(configured, NO_CHANGE, load) is configured


@pytest.mark.parametrize("word", ["no_option=1", "max_staleness=-1", "streams.no_window_s=1", "batch_size"])
def test_an_option_that_no_fold_would_take_is_refused_in_one_line(word: str) -> None:
    with pytest.raises(RejectedError, match="expected") as refused:
        changed(a_configuration(), Change(options=read_options([word])), load)
    assert "\n" not in str(refused.value)
