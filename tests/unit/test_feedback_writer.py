import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import decode, encode
from schemas.errors import RejectedError
from schemas.events import FeedbackReported, FeedbackSource
from schemas.feedback_writer import FeedbackSaid, feedback_record, feedback_records
from schemas.ids import Route, Session, Sha256, route_of, route_of_import, route_of_session
from schemas.partitions import murmur2, partition_of
from tests.builders import SCENARIO, TIME_US, a_receipt

PAGE = Path("docs/kafka.md").read_text()
REPORTED_AT_US = 1_790_000_001_000_000


def said(**changes: Any) -> FeedbackSaid:
    fields: dict[str, Any] = {"references": [a_receipt(1)], "score": 1.0, "feedback": "good"}
    return FeedbackSaid(**(fields | changes))


def written(report: FeedbackSaid) -> list[tuple[bytes, FeedbackReported]]:
    events = []
    for key, value in feedback_records(
        report, scenario="capitals", report_id="report-1", reported_at_us=TIME_US
    ):
        event = decode(value)
        assert isinstance(event, FeedbackReported)
        events.append((key, event))
    return events


def receipt_of_the_page() -> str:
    match = re.search(r"receipt `(rec_\w+)`", PAGE)
    assert match is not None
    return match[1]


def bytes_of_the_page() -> bytes:
    cells = re.findall(r"^\| `([0-9a-f ]+)` \|", PAGE, re.MULTILINE)
    return bytes.fromhex("".join(cells))


def example_of_the_page() -> dict[str, Any]:
    block = re.search(r"```python\n(import base64.*?)```", PAGE, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1], names)
    return names


def test_the_page_shows_the_bytes_that_we_write() -> None:
    report = FeedbackSaid(references=[receipt_of_the_page()], score=1.0, feedback="good")
    key, value = feedback_record(
        report, scenario="capitals", report_id="report-1", reported_at_us=REPORTED_AT_US
    )
    event = decode(value)
    assert isinstance(event, FeedbackReported)
    assert bytes_of_the_page() == encode(replace(event, content_sha256=Sha256("")))
    assert f"value, {len(bytes_of_the_page())} bytes" in PAGE
    assert f"key `{key.decode()}`; its murmur2 is `{murmur2(key):#010x}`" in PAGE
    assert f"of 8 partitions it is partition {partition_of(key, 8)}" in PAGE


def test_the_pages_example_writes_the_bytes_that_the_page_shows() -> None:
    key, value = example_of_the_page()["feedback"](
        "capitals", "report-1", receipt_of_the_page(), 1.0, "good", REPORTED_AT_US
    )
    assert value == bytes_of_the_page()
    assert key == route_of(receipt_of_the_page()).encode()  # type: ignore[arg-type]


@given(number=st.integers(1, 10_000), session=st.text(min_size=1, max_size=20))
def test_the_pages_example_finds_the_route_of_any_receipt(number: int, session: str) -> None:
    receipt = a_receipt(number, route=route_of_session(SCENARIO, Session(session)))
    assert ROUTE_OF(receipt) == route_of(receipt)


ROUTE_OF = example_of_the_page()["route_of"]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_a_report_has_one_part_a_route_and_every_reference_once(routes: list[int]) -> None:
    receipts = [a_receipt(n + 1, route=Route(f"{route:016x}")) for n, route in enumerate(routes)]
    parts = written(said(references=receipts))
    assert [event.part for _, event in parts] == list(range(len(set(routes))))
    assert {event.num_parts for _, event in parts} == {len(set(routes))}
    assert sorted(receipt for _, event in parts for receipt in event.references) == sorted(receipts)
    for key, event in parts:
        assert key == event.route.encode()
        assert {route_of(receipt) for receipt in event.references} == {event.route}
        assert list(event.references) == [r for r in receipts if r in event.references]
    assert len({event.content_sha256 for _, event in parts}) == 1


def test_everything_said_is_written() -> None:
    report = said(
        feedback={"b": "ü", "a": 1},
        metadata={"group": "g"},
        supersedes="report-0",
        is_withdrawal=True,
        score=None,
    )
    ((_, event),) = written(report)
    assert event.feedback == '{"a":1,"b":"ü"}'.encode()
    assert event.metadata == b'{"group":"g"}'
    assert (event.supersedes, event.is_withdrawal, event.score) == ("report-0", True, None)
    assert (event.source, event.reported_at_us) == (FeedbackSource.KAFKA, TIME_US)


def test_an_imported_call_is_found_by_the_clients_own_id() -> None:
    ((key, event),) = written(said(references=["call-7"]))
    assert key.decode() == event.route == route_of_import(SCENARIO, "call-7")


def test_answers_of_several_routes_do_not_fit_one_record() -> None:
    receipts = [a_receipt(1), a_receipt(2, route=Route("00" * 8))]
    with pytest.raises(RejectedError, match=r"write all of feedback_records"):
        feedback_record(said(references=receipts), scenario="capitals", report_id="r", reported_at_us=1)


@pytest.mark.parametrize(
    ("report", "report_id"),
    [
        (said(), " "),
        (said(references=[]), "r"),
        (said(references=[a_receipt(1), a_receipt(1)]), "r"),
        (said(references=["rec_short"]), "r"),
        (said(is_withdrawal=True), "r"),
        (said(score=float("nan")), "r"),
        (said(metadata={"x": float("inf")}), "r"),
    ],
)
def test_what_a_reader_would_refuse_is_refused_at_once(report: FeedbackSaid, report_id: str) -> None:
    with pytest.raises(RejectedError):
        feedback_records(report, scenario="capitals", report_id=report_id, reported_at_us=1)


def test_equal_content_has_an_equal_digest_and_other_content_another() -> None:
    first = written(said(metadata={"a": 1, "b": 2.0}))[0][1].content_sha256
    same = written(said(metadata={"b": 2, "a": 1.0}))[0][1].content_sha256
    other = written(said(metadata={"a": 1, "b": 3}))[0][1].content_sha256
    assert first == same != other
