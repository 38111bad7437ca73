import asyncio
import signal
from pathlib import Path

import pytest
from matplotlib.image import imread
from rich.console import Console

from deploy.demo.__main__ import termination_as_interruption
from deploy.demo.picture import draw
from deploy.demo.screen import fate_line, screen, timeline
from deploy.demo.showing import showing
from deploy.demo.story import Story
from schemas.events import Event, OutcomeReason, OutcomeState
from schemas.ids import BatchId, ReleaseId, ScenarioName
from tests import builders as a

SECOND_US = 1_000_000


def a_story(*events: tuple[Event, int]) -> Story:
    story = Story(scenario=a.SCENARIO)
    for event, time_us in events:
        story.take(event, time_us)
    return story


def a_batch(number: int, reward: float, at_us: int) -> list[tuple[Event, int]]:
    name, receipt = BatchId(f"batch-{number}"), a.a_receipt(number)
    experience = a.an_experience_assembled(receipts=(receipt,), reward=reward)
    return [
        (a.an_inference_completed(receipt=receipt), at_us),
        (a.a_feedback_reported(references=(receipt,)), at_us + SECOND_US),
        (a.a_training_sample(batch_id=name, experience=experience), at_us + 3 * SECOND_US),
        (a.a_batch_sealed(batch_id=name), at_us + 3 * SECOND_US),
    ]


def test_a_batch_is_told_from_its_last_feedback_to_the_first_token_of_its_release() -> None:
    name, release = BatchId("batch-1"), ReleaseId("r" * 64)
    story = a_story(
        *a_batch(1, 0.25, 0),
        (a.a_candidate_trained(batch_id=name), 13 * SECOND_US),
        (a.a_candidate_evaluated(batch_ids=(name,)), 14 * SECOND_US),
        (a.a_release_published(batch_ids=(name,), release_id=release, release_seq=4), 14 * SECOND_US),
        (a.a_model_swapped(release_id=release, pause_ms=61.0), 15 * SECOND_US),
    )
    story.hear_first_token(release, 17 * SECOND_US)
    story.hear_first_token(release, 16 * SECOND_US)
    (batch,) = story.sealed
    assert (batch.sealing_s, batch.training_s, batch.releasing_s) == (2.0, 10.0, 3.0)
    assert (batch.release_seq, batch.pause_ms, batch.reward_mean) == (4, 61.0, 0.25)


def test_a_batch_that_waited_for_the_one_before_it_waited_from_its_end_on() -> None:
    story = a_story(
        *a_batch(1, 0.25, 0),
        (a.a_candidate_evaluated(batch_ids=(BatchId("batch-1"),)), 9 * SECOND_US),
        *a_batch(2, 0.5, 7 * SECOND_US),
    )
    assert [batch.sealing_s for batch in story.sealed] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("rewards", "has_learned"), [((), False), ((0.95,), False), ((0.9, 0.95), True), ((0.95, 0.89), False)]
)
def test_it_has_learned_when_two_batches_in_a_row_are_good(
    rewards: tuple[float, ...], has_learned: bool
) -> None:
    events = [event for number, reward in enumerate(rewards) for event in a_batch(number, reward, 0)]
    assert a_story(*events).has_learned is has_learned


def test_every_call_is_under_one_fate_and_the_latest_counts() -> None:
    told: list[Event] = [a.an_inference_completed(receipt=a.a_receipt(number)) for number in range(3)]
    stale = a.an_outcome_settled(
        receipt=a.a_receipt(0), state=OutcomeState.DROPPED, reason=OutcomeReason.STALE
    )
    trained = a.an_outcome_settled(receipt=a.a_receipt(1), state=OutcomeState.TRAINED, reason=None)
    story = a_story(*((event, 0) for event in (*told, stale, trained)))
    assert story.fates_of(story.answered) == {"trained": 1, "dropped": 1, "pending": 1}
    assert story.reasons_of(story.answered) == {"stale": 1}


def test_calls_of_an_earlier_run_that_end_in_this_one_are_in_no_number_of_the_fate_line() -> None:
    ours = (a.a_receipt(0), a.a_receipt(1))
    told: list[Event] = [a.an_inference_completed(receipt=receipt) for receipt in ours]
    dropped = {0: OutcomeReason.STALE, 7: OutcomeReason.STALE, 8: OutcomeReason.CLIENT_ABORTED}
    for number, reason in dropped.items():
        receipt = a.a_receipt(number)
        told.append(a.an_outcome_settled(receipt=receipt, state=OutcomeState.DROPPED, reason=reason))
    story = a_story(*((event, 0) for event in told))
    assert fate_line(story) == "2 answered = 0 trained + 1 dropped (stale 1) + 1 pending"


def test_another_scenarios_events_are_no_part_of_it() -> None:
    assert a_story((a.an_inference_completed(scenario=ScenarioName("other")), 0)).answered == set()


def test_a_story_is_shown_and_drawn(tmp_path: Path) -> None:
    story = a_story(*a_batch(1, 0.25, 0), *a_batch(2, 1.0, 0))
    console = Console(record=True, width=100)
    console.print(screen(story, "note", "What is the sky?"), timeline(story.sealed))
    text = console.export_text()
    assert "▂█ 1.00" in text
    assert "answered 2  reports 2  trained 0  dropped 0  pending 2" in text
    path = tmp_path / "deep" / "curve.png"
    draw(story, path)
    assert imread(path).shape[:2] == (540, 960)


def released(number: int, at_us: int) -> list[tuple[Event, int]]:
    name, release = BatchId(f"batch-{number}"), ReleaseId(f"{number}" * 64)
    return [
        *a_batch(number, 0.5, at_us),
        (a.a_candidate_trained(batch_id=name), at_us + 13 * SECOND_US),
        (a.a_candidate_evaluated(batch_ids=(name,)), at_us + 14 * SECOND_US),
        (
            a.a_release_published(batch_ids=(name,), release_id=release, release_seq=number),
            at_us + 14 * SECOND_US,
        ),
        (a.a_model_swapped(release_id=release, pause_ms=61.0), at_us + 15 * SECOND_US),
    ]


def test_each_release_is_shown_with_what_it_answers() -> None:
    story = a_story(*released(1, 0))
    story.hear_answer("1" * 64, "Blue,\nas a matter of fact, whenever the sun is out.")
    console = Console(record=True, width=120)
    console.print(screen(story, "note", "What colour is the sky?"))
    text = console.export_text()
    assert "What colour is the sky?" in text
    assert "Blue, as a matter of fact, whenever…" in text


def test_where_no_screen_is_drawn_each_batch_is_a_line_once_it_is_whole() -> None:
    *events, swap = released(1, 0)
    story = a_story(*events)
    console = Console(record=True, width=40, force_terminal=False)
    with showing(console, story, "What?") as show:
        assert console.export_text() == "each release is asked: What?\n"
        show("")
        story.hear_first_token("1" * 64, 16 * SECOND_US)
        show("")
        assert console.export_text() == ""
        story.hear_answer("1" * 64, "Blue,\nwhen [it] is sunny.")
        show("")
        assert console.export_text() == ""
        story.take(*swap)
        show("")
        show("")
    told = "batch 1  reward 0.50  trained in 10.0 s  r1 serves 3.0 s later, after a pause of 61 ms"
    assert console.export_text() == f'{told}, and says "Blue, when [it] is sunny."\n'


def test_a_release_that_was_overtaken_before_it_was_asked_is_told_without_an_answer() -> None:
    story = a_story(*released(1, 0), *released(2, 20 * SECOND_US))
    story.hear_first_token("1" * 64, 16 * SECOND_US)
    console = Console(record=True, width=40, force_terminal=False)
    with showing(console, story, "What?") as show:
        show("")
    told = "batch 1  reward 0.50  trained in 10.0 s  r1 serves 3.0 s later, after a pause of 61 ms"
    assert console.export_text() == f"each release is asked: What?\n{told}\n"


def test_a_termination_of_the_demo_is_taken_as_an_interruption() -> None:
    async def wait_for_ever() -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), termination_as_interruption():
        asyncio.run(wait_for_ever())
    assert signal.getsignal(signal.SIGTERM) is before
