import io
from typing import Any

from rich.console import Console

from deploy.life_table import CALLS_SHOWN_MAX, answer_of, life_table, stages_of, with_answers


def a_place(topic: str, offset: int) -> dict[str, Any]:
    return {"topic": f"reef.{topic}.v1", "partition": 3, "offset": offset}


def a_report(**changes: Any) -> dict[str, Any]:
    return {
        "agent_record_id": "report-1",
        "score": 1.0,
        "has_feedback": True,
        "supersedes": None,
        "is_withdrawal": False,
        "reported_at_us": 2,
        "place": a_place("interactions", 8),
    } | changes


def a_call(**changes: Any) -> dict[str, Any]:
    return {
        "agent_record_id": "rec_1",
        "scenario": "capitals",
        "session": "s-1",
        "state": "trained",
        "reason": None,
        "notes": [],
        "release_id": "c1",
        "served_by": [{"release_id": "c0", "release_seq": 0, "num_tokens": 3}],
        "reports": [a_report()],
        "outcome": "completed",
        "partition": 3,
        "offset": 7,
        "completed_at": 1,
        "settled_at": 9,
        "settled_place": a_place("outcomes", 1),
    } | changes


def a_batch(**changes: Any) -> dict[str, Any]:
    return {
        "batch_id": "batch-1",
        "seal": {
            "batch_seq": 0,
            "num_samples": 1,
            "base_release_seq": 0,
            "sealed_at_us": 4,
            "place": a_place("training", 2),
        },
        "training": {
            "candidate_id": "candidate-1",
            "step": 1,
            "is_publishable": True,
            "trained_at_us": 5,
            "place": a_place("candidates", 3),
        },
        "failure": None,
        "verdict": {
            "verdict": "accepted",
            "reasons": [],
            "evaluated_at_us": 6,
            "place": a_place("releases", 4),
        },
    } | changes


def a_release(**changes: Any) -> dict[str, Any]:
    swap = {"release_seq": 1, "gateway_id": "g", "pause_ms": 12.4, "swapped_at_us": 8}
    return {
        "release_id": "c1",
        "release_seq": 1,
        "operation": "training",
        "published_at_us": 7,
        "place": a_place("releases", 5),
        "swaps": [{**swap, "place": a_place("serving", 6)}],
    } | changes


EXPERIENCE = {
    "experience_id": "experience-1",
    "receipts": ["rec_1"],
    "reward": 1.0,
    "release_seq_first": 0,
    "release_seq_last": 0,
    "assembled_at_us": 3,
    "place": a_place("experience", 9),
}


def a_told_call(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "call",
        "scenario": "capitals",
        "call": a_call(),
        "experience": EXPERIENCE,
        "batch": a_batch(),
        "releases": [a_release()],
    } | changes


def test_the_life_of_a_trained_call_is_told_in_the_order_of_causes_with_places() -> None:
    stages = stages_of(a_told_call())
    assert [(stage.name, stage.at_us) for stage in stages] == [
        ("call", 1),
        ("report", 2),
        ("experience", 3),
        ("batch", 4),
        ("candidate", 5),
        ("verdict", 6),
        ("release", 7),
        ("swap", 8),
        ("outcome", 9),
    ]
    assert [stage.place for stage in stages] == [
        "reef.interactions.v1/3@7",
        "reef.interactions.v1/3@8",
        "reef.experience.v1/3@9",
        "reef.training.v1/3@2",
        "reef.candidates.v1/3@3",
        "reef.releases.v1/3@4",
        "reef.releases.v1/3@5",
        "reef.serving.v1/3@6",
        "reef.outcomes.v1/3@1",
    ]
    assert answer_of(a_told_call()) == "trained: it is part of release c1"


def test_a_dropped_call_ends_with_its_reason_and_a_pending_one_with_what_it_waits_for() -> None:
    dropped = a_call(state="dropped", reason="greedy", release_id=None, reports=[])
    told = a_told_call(call=dropped, experience=None, batch=None, releases=[])
    assert [stage.name for stage in stages_of(told)] == ["call", "outcome"]
    assert stages_of(told)[-1].what == "dropped: greedy"
    assert "temperature" in answer_of(told)
    pending = a_call(state="pending", release_id=None, reports=[], offset=None, partition=None)
    told = a_told_call(call=pending, experience=None, batch=None, releases=[])
    assert [stage.place for stage in stages_of(told)] == ["on its way to the log"]


def test_a_report_and_a_release_lead_back_to_the_calls() -> None:
    calls = [{"agent_record_id": f"rec_{n}", "state": "dropped", "reason": "stale"} for n in range(2)]
    told: dict[str, Any] = {"kind": "report", "report": a_report(places=[]), "calls": calls}
    assert [stage.name for stage in stages_of(told)] == ["report", "call", "call"]
    assert answer_of(told) == "2 calls it judges: 2 stale"
    assert answer_of({**told, "calls": calls[:1]}).startswith(
        "the call it judges is not trained: the weights"
    )
    release = {"kind": "release", "release": a_release(), "batches": [a_batch(calls=calls)]}
    names = [stage.name for stage in stages_of(release)]
    assert names == ["release", "swap", "batch", "candidate", "verdict", "call", "call"]
    assert answer_of(release).startswith("release 1 by training: it learned from 2 call(s) of 1 batch(es)")
    made = with_answers(release)
    assert all("not trained" in call["why"] for call in made["batches"][0]["calls"])


def test_a_batch_says_what_became_of_it() -> None:
    def told(releases: list[Any], **changes: Any) -> str:
        return answer_of({"kind": "batch", "batch": a_batch(**changes), "releases": releases, "calls": []})

    failure = {"reason": "non_finite", "detail": "expected", "failed_at_us": 5, "place": None}
    warm_up = {**a_batch()["training"], "is_publishable": False}
    assert told([a_release()]) == "its candidate became release 1"
    assert told([], training=None, verdict=None, failure=failure) == "it could not be trained: non_finite"
    assert "warmed up" in told([], training=warm_up, verdict=None)
    assert "not decided" in told([], verdict=None)
    held = {**a_batch()["verdict"], "verdict": "held"}
    assert told([], verdict=held) == "its candidate was held, so no release came of it"


def test_a_long_list_of_calls_is_cut_on_a_screen_and_says_so() -> None:
    calls = [{"agent_record_id": "rec", "state": "pending"} for _ in range(CALLS_SHOWN_MAX + 5)]
    told = {"kind": "batch", "batch": a_batch(), "releases": [], "calls": calls}
    assert stages_of(told)[-1].what == "5 more: see --json"
    assert len(with_answers(told)["calls"]) == CALLS_SHOWN_MAX + 5


def test_the_table_shows_each_stage_on_a_line() -> None:
    text = io.StringIO()
    table = life_table(stages_of(a_told_call()), when=lambda at_us: f"at {at_us}")
    Console(file=text, width=400).print(table)
    lines = text.getvalue().splitlines()
    assert len(lines) == 10
    assert "at 3" in lines[3]
    assert "reef.experience.v1/3@9" in lines[3]


def test_a_refused_report_and_an_unknown_share_are_told() -> None:
    refusal = {"reason": "already_credited", "detail": "name that report in supersedes"}
    call = a_call(
        reports=[a_report(refusal=refusal)],
        served_by=[{"release_id": "c0", "release_seq": 0, "num_tokens": -1}],
    )
    told: dict[str, Any] = {"kind": "call", "call": call, "experience": None, "batch": None, "releases": []}
    call_stage, report_stage, *_ = stages_of(told)
    assert "release 0: some of the tokens" in call_stage.what
    assert "refused: already_credited: name that report in supersedes" in report_stage.what
    told = {"kind": "report", "report": a_report(refusal=refusal), "calls": [{"state": "pending"}]}
    assert answer_of(told).startswith("refused as already_credited, so it changed nothing")
