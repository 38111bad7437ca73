"""The chain as people read it, and what they may type to name one of its releases."""

from typing import Any

import pytest
from rich.console import Console

from deploy.chain_table import chain_table, chosen_candidate, chosen_release, held_table, measured
from deploy.times import moment
from schemas.errors import RejectedError


def a_row(seq: int, **changes: Any) -> dict[str, Any]:
    return {
        "release_id": f"{seq:x}" * 64,
        "release_seq": seq,
        "operation": "training" if seq else "creation",
        "rollback_target_release_id": None,
        "content_sha256": f"{seq + 8:x}" * 64,
        "batch_ids": ["b"] * seq,
        "published_at_us": 1_790_000_000_000_000,
        "metrics": {},
        "kind": "checkpoint",
        "serving": False,
        "current": False,
        "pending": False,
        **changes,
    }


def shown(table: object, width: int = 10_000) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


CHAIN = (
    a_row(3, operation="rollback", rollback_target_release_id="1" * 64, current=True, pending=True),
    a_row(2, serving=True, metrics={"score": 0.123456, "loss": 2.0}),
    a_row(1),
    a_row(0),
)


def test_a_row_says_what_serves_where_it_came_from_and_what_was_measured() -> None:
    _, head, serves, *_ = shown(chain_table(CHAIN, is_whole=True, when=moment))
    assert head.startswith("head, not serving yet")
    assert "rollback to 1" in head
    assert serves.split() == [
        *("serves", "2", "2" * 64, "training", "2026-09-21", "14:13:20", "a" * 64, "2"),
        *("score", "0.1235,", "loss", "2"),
    ]


def test_a_harness_says_what_it_is_and_is_never_about_to_serve() -> None:
    rows = (a_row(1, kind="harness", current=True), a_row(0, serving=True))
    _, head, serves = shown(chain_table(rows, is_whole=True, when=moment))
    assert head.split()[:6] == ["head", "1", "1" * 64, "training", "of", "harness"]
    assert serves.split()[0] == "serves"


def test_on_a_narrow_screen_every_release_keeps_its_number_and_the_beginning_of_its_id() -> None:
    lines = shown(chain_table(CHAIN, is_whole=False, when=moment), width=120)
    assert [line for line in lines if "2" * 12 in line and "2" * 13 not in line]
    assert max(len(line) for line in lines) <= 120


def test_held_candidates_are_named_whole() -> None:
    held = [{"candidate_id": "c" * 36, "evaluated_at_us": 0, "metrics": {"score": 1.0}}]
    assert shown(held_table(held, is_whole=True, when=moment))[1].split() == [
        "c" * 36,
        "1970-01-01",
        "00:00:00",
        "score",
        "1",
    ]


@pytest.mark.parametrize(("word", "seq"), [("0", 0), ("3", 3), ("r3", 3), ("2222222222", 2), ("1" * 64, 1)])
def test_a_release_is_named_by_its_number_or_the_beginning_of_its_id(word: str, seq: int) -> None:
    assert chosen_release(CHAIN, word)["release_seq"] == seq


@pytest.mark.parametrize(("word", "got"), [("9", "none"), ("abc", "none"), ("", "4 that begin so")])
def test_a_name_of_no_release_or_of_several_is_refused(word: str, got: str) -> None:
    with pytest.raises(RejectedError, match=f"got {got}"):
        chosen_release(CHAIN, word)


def test_a_whole_id_wins_over_a_longer_one_that_begins_so() -> None:
    rows = [a_row(0, release_id="abc"), a_row(1, release_id="abcd")]
    assert chosen_release(rows, "abc")["release_seq"] == 0


def test_the_beginning_of_a_held_candidates_id_is_completed_when_only_one_begins_so() -> None:
    held = [{"candidate_id": "aa-1"}, {"candidate_id": "ab-2"}]
    assert chosen_candidate(held, "aa") == "aa-1"
    assert chosen_candidate(held, "a") == "a"
    assert chosen_candidate(held, "f" * 64) == "f" * 64


def test_a_screen_shows_a_few_metrics_those_of_quality_first() -> None:
    metrics = {"a": 1.0, "b": 2.0, "c": 3.0, "reward_mean": 0.5, "score": 0.25}
    assert measured(metrics, is_whole=False) == "reward_mean 0.5, score 0.25, a 1, 2 more"
    assert measured(metrics, is_whole=True) == "reward_mean 0.5, score 0.25, a 1, b 2, c 3"
