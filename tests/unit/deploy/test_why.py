"""Every reason of the closed list is answered in a sentence, and the page says the same."""

import re
from pathlib import Path
from typing import Any

import pytest

from deploy.why import NOTES, WHY, why
from schemas.events import OutcomeReason

PAGE = (Path(__file__).parents[3] / "docs/outcomes.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| (?:session|batch).*?\| (.*) \|$", PAGE, re.MULTILINE))


def a_call(**changes: Any) -> dict[str, Any]:
    return {"state": "pending", "reason": None, "notes": [], "reports": [], "release_id": None} | changes


def test_every_reason_has_words_and_a_row_on_the_page() -> None:
    assert set(WHY) == set(OutcomeReason)
    assert set(ROWS) == {reason.value for reason in OutcomeReason}


@pytest.mark.parametrize("reason", OutcomeReason)
def test_a_dropped_call_is_explained_by_a_sentence_of_its_own(reason: OutcomeReason) -> None:
    said = why(a_call(state="dropped", reason=reason.value))
    assert said.startswith("not trained: ")
    assert said.endswith(f"({reason.value})")
    assert [other for other in OutcomeReason if WHY[other] in said] == [reason]
    assert len(said.split()) > 5


@pytest.mark.parametrize("reason", OutcomeReason)
def test_what_a_sentence_names_stands_in_the_row_of_the_page(reason: OutcomeReason) -> None:
    named = set(re.findall(r"`([^`]+)`", WHY[reason]))
    assert {name for name in named if name not in ROWS[reason.value]} == set()


def test_a_reason_of_a_newer_service_is_no_failure() -> None:
    assert "(invented_tomorrow)" in why(a_call(state="dropped", reason="invented_tomorrow"))
    assert why(a_call(state="invented")).startswith("invented: ")


def test_a_trained_call_names_its_release_or_says_that_there_is_none() -> None:
    assert why(a_call(state="trained", release_id="c1")) == "trained: it is part of release c1"
    assert "held" in why(a_call(state="trained"))


def test_a_pending_call_says_what_it_waits_for() -> None:
    report = {"agent_record_id": "r"}
    said = [
        why(a_call()),
        why(a_call(reports=[report])),
        why(a_call(reports=[report]), experience={"experience_id": "e"}),
    ]
    assert [("no report" in one, "waits for a batch" in one) for one in said] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    assert all(one.startswith("not trained yet: ") for one in said)


def test_a_note_is_explained_and_named_on_the_page() -> None:
    for note, words in NOTES.items():
        assert why(a_call(state="trained", notes=[note])).endswith(words)
        assert f"`{note}`" in PAGE
