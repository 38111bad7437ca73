import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import FieldError
from gateway.report_routes import read_reports
from gateway.reports import FIELDS, ReportRules, read_report, report_events
from schemas.feedback_writer import FeedbackSaid
from schemas.ids import (
    Receipt,
    ReportId,
    ScenarioName,
    Session,
    mint_receipt,
    route_of,
    route_of_session,
)
from schemas.recipe import ReportSchema

KEY, OLD_KEY, OTHER_KEY = (
    b"newest key of the tests, 32 bytes",
    b"an older key of the tests",
    b"not a key of ours",
)
SCENARIO, ELSEWHERE = ScenarioName("capitals"), ScenarioName("elsewhere")


def a_receipt(
    number: int = 0, *, session: str = "s", scenario: ScenarioName = SCENARIO, key: bytes = KEY
) -> Receipt:
    route = route_of_session(scenario, Session(session))
    return mint_receipt(scenario, route, time_ms=number, nonce=b"nonce!", key=key)


def rules(**schema: Any) -> ReportRules:
    return ReportRules(
        scenario=SCENARIO,
        schema=ReportSchema(**schema),
        score_abs_max=10.0,
        receipt_keys=(KEY, OLD_KEY),
    )


def a_report(**changes: Any) -> dict[str, Any]:
    return {"references": [a_receipt()], "score": 1} | changes


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"score": True}, "score"),
        ({"score": "1"}, "score"),
        ({"score": math.inf}, "score"),
        ({"score": math.nan}, "score"),
        ({"score": 10.5}, "score"),
        ({"score": -11}, "score"),
        ({"feedback": 3}, "feedback"),
        ({"feedback": ["a"]}, "feedback"),
        ({"feedback": {"n": 2**60}}, "feedback"),
        ({"metadata": "text"}, "metadata"),
        ({"agent_record_id": ""}, "agent_record_id"),
        ({"agent_record_id": " \t"}, "agent_record_id"),
        ({"agent_record_id": 7}, "agent_record_id"),
        ({"agent_record_id": "x" * 257}, "agent_record_id"),
        ({"supersedes": ""}, "supersedes"),
        ({"agent_record_id": "a", "supersedes": "a"}, "supersedes"),
        ({"withdraw": 1}, "withdraw"),
        ({"withdraw": True}, "supersedes"),
        ({"references": "rec_1"}, "references"),
        ({"references": []}, "references"),
        ({"references": None}, "references"),
        ({"references": [a_receipt(), a_receipt()]}, "references[1]"),
        ({"references": [a_receipt(), 3]}, "references[1]"),
        ({"references": ["rec_short"]}, "references[0]"),
        ({"references": [a_receipt(scenario=ELSEWHERE)]}, "references[0]"),
        ({"references": [a_receipt(key=OTHER_KEY)]}, "references[0]"),
        ({"references": [a_receipt(n) for n in range(1_001)]}, "references"),
        ({"scores": 1}, "scores"),
        ({"withdrawn": True}, "withdrawn"),
        ({"group": 1, "metadata": {"group": 2}}, "group"),
    ],
)
def test_a_report_that_breaks_a_rule_is_refused_by_the_name_of_its_field(
    changes: dict[str, Any], param: str
) -> None:
    for where in ("", "reports[3]."):
        with pytest.raises(FieldError) as refused:
            read_report(a_report(**changes), rules(), where=where)
        assert refused.value.param == where + param
        assert str(refused.value).startswith(where + param)


def test_forged_and_foreign_receipts_are_refused_in_the_same_words() -> None:
    said = []
    for receipt in (a_receipt(scenario=ELSEWHERE), a_receipt(key=OTHER_KEY), "rec_" + "0" * 45):
        with pytest.raises(FieldError) as refused:
            read_report(a_report(references=[receipt]), rules())
        said.append(str(refused.value))
    assert len(set(said)) == 1


@pytest.mark.parametrize("key", [KEY, OLD_KEY])
def test_a_receipt_under_any_accepted_key_is_taken(key: bytes) -> None:
    assert read_report(a_report(references=[a_receipt(key=key)]), rules()).said.references


def test_what_the_recipe_needs_is_asked_for() -> None:
    for schema, report, param in (
        ({"is_score_required": True}, a_report(score=None), "score"),
        ({"num_references_min": 2}, a_report(), "references"),
        ({"required_metadata": ("group",)}, a_report(metadata={"group": None}), "metadata.group"),
    ):
        with pytest.raises(FieldError) as refused:
            read_report(report, rules(**schema))
        assert refused.value.param == param
    read_report(a_report(score=None, references=[]), rules(num_references_min=0))
    read_report({"withdraw": True, "supersedes": "f1"}, rules(is_score_required=True))


def test_fields_of_a_recipe_are_kept_as_metadata() -> None:
    given = read_report(a_report(group="g", metadata={"choice": 1}), rules())
    assert given.said.metadata == {"group": "g", "choice": 1}


@given(
    score=st.integers(-10, 10),
    metadata=st.none() | st.dictionaries(st.text(max_size=5), st.integers(-100, 100), max_size=3),
    order=st.permutations(["references", "score", "metadata", "feedback"]),
)
def test_equal_content_has_equal_digests_however_it_is_written(
    score: int, metadata: Mapping[str, int] | None, order: list[str]
) -> None:
    fields = {name for name in metadata or {} if name in FIELDS}
    one = a_report(score=score, metadata=metadata, feedback=None)
    other = {name: {**one, "score": float(score)}[name] for name in order}
    if metadata is None:
        del other["metadata"]
    assert read_report(one, rules()).content_sha256 == read_report(other, rules()).content_sha256
    changed = read_report({**one, "score": score + (1 if score < 10 else -1)}, rules())
    assert changed.content_sha256 != read_report(one, rules()).content_sha256
    assert fields <= set(FIELDS)


def test_a_list_of_reports_is_read_by_number_and_bounded() -> None:
    assert len(read_reports({"reports": [a_report(), a_report()]}, rules())) == 2
    with pytest.raises(FieldError, match=r"reports\[1\]\.score"):
        read_reports({"reports": [a_report(), a_report(score=True)]}, rules())
    for body, param in (
        ({"reports": []}, "reports"),
        ({"reports": {}}, "reports"),
        ({"reports": [a_report()] * 1_001}, "reports"),
        ({"reports": [a_report(), 1]}, "reports[1]"),
        ({"reports": [a_report()], "score": 1}, "score"),
    ):
        with pytest.raises(FieldError) as refused:
            read_reports(body, rules())
        assert refused.value.param == param


_sessions = st.lists(st.sampled_from("abcde"), max_size=8)


@given(own=_sessions, old=_sessions, is_withdrawal=st.booleans())
def test_every_route_of_the_new_and_the_old_report_hears_of_it_once(
    own: list[str], old: list[str], is_withdrawal: bool
) -> None:
    new_calls = [a_receipt(n, session=session) for n, session in enumerate(own)]
    old_calls = [a_receipt(100 + n, session=session) for n, session in enumerate(old)]
    said = FeedbackSaid(
        references=new_calls, score=1.0, feedback="fine", supersedes="f1", is_withdrawal=is_withdrawal
    )
    parts = report_events(said, report_id=ReportId("f2"), scenario=SCENARIO, superseded=old_calls, now_us=7)
    assert [part.part for part in parts] == list(range(len(parts)))
    assert {part.num_parts for part in parts} == {len(parts)}
    routes = [part.route for part in parts]
    assert len(routes) == len(set(routes)) >= 1
    if own or old:
        assert set(routes) == {route_of(call) for call in (*new_calls, *old_calls)}
    quoted = [reference for part in parts for reference in part.references if reference in new_calls]
    assert sorted(quoted) == sorted(new_calls)
    for part in parts:
        assert all(route_of(reference) == part.route for reference in part.references)
        names_new = any(reference in new_calls for reference in part.references)
        takes_back = not names_new and bool(old)
        assert part.is_withdrawal == (is_withdrawal or takes_back)
        assert (part.score, part.feedback) == ((None, None) if takes_back else (1.0, b'"fine"'))
        assert {part.supersedes, part.report_id} == {"f1", "f2"}
