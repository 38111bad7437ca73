import io
import json
from collections import deque
from typing import Any

import pytest
from rich.console import Console

from deploy.commands.rejected import show_list
from deploy.durations import seconds_of
from deploy.refusals import (
    ATTEMPTS_HEADER,
    INPUT_TOPICS,
    LatestOfEach,
    Listing,
    Refusal,
    Wanted,
    attempts_of,
    counts_table,
    likeness,
    place_named,
    put_back,
    refusal_object,
    refusal_whole,
    refusals_table,
    split_words,
)
from schemas.codec import encode
from schemas.errors import ConflictError, RejectedError
from schemas.events import EventRejected, Header
from schemas.packed import OriginalBytes
from schemas.topics import EXPERIENCE, INTERACTIONS, TOPICS, TRAINING
from tests.builders import a_feedback_reported, an_erasure_requested, an_event_rejected

SECRET = b"the text nobody may find"


def refused(attempts: int = 0, **changes: Any) -> EventRejected:
    kept = (Header(name="trace", value=b"t"),)
    counted = (Header(name=ATTEMPTS_HEADER, value=str(attempts).encode()),) if attempts else ()
    named: dict[str, Any] = {
        "source_topic": INTERACTIONS,
        "source_partition": 5,
        "key": OriginalBytes(b"route"),
        "value": OriginalBytes(b"bytes"),
        "headers": (*kept, *counted),
    }
    return an_event_rejected(**(named | changes))


def at(offset: int, event: EventRejected, partition: int = 0) -> Refusal:
    return Refusal(partition=partition, offset=offset, timestamp_us=offset, event=event)


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("3@17", (3, 17)),
        ("3-17", (3, 17)),
        ("reef.rejected.v1/3@17", (3, 17)),
        ("reef.rejected.v1-3-17", (3, 17)),
    ],
)
def test_a_refusal_is_named_by_its_place(word: str, place: tuple[int, int]) -> None:
    assert place_named(word) == place


@pytest.mark.parametrize("word", ["", "3", "reef.interactions.v1/3@17", "3@-1", "a@b", "3@17x"])
def test_another_name_is_refused(word: str) -> None:
    with pytest.raises(RejectedError, match="PARTITION@OFFSET"):
        place_named(word)


def test_settings_among_the_names_are_told_apart() -> None:
    words = ["1@2", "--blobs.url", "file:///a", "3@4", "--kafka.partitions=8", "5@6"]
    assert split_words(words) == (
        ["1@2", "3@4", "5@6"],
        ["--blobs.url", "file:///a", "--kafka.partitions=8"],
    )


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("30m", 1800), ("12h", 43_200), ("7d", 604_800)])
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "7w", "1h30m"])
def test_another_duration_is_refused(text: str) -> None:
    with pytest.raises(RejectedError, match="30m, 12h or 7d"):
        seconds_of(text)


def test_a_record_goes_back_as_it_came_with_one_attempt_more() -> None:
    for attempts in (0, 1, 2):
        back = put_back(refused(attempts), None, attempts_max=3)
        assert (back.topic, back.key, back.value, back.partition) == (INTERACTIONS, b"route", b"bytes", None)
        assert list(back.headers) == [
            Header(name="trace", value=b"t"),
            Header(name=ATTEMPTS_HEADER, value=str(attempts + 1).encode()),
        ]


@pytest.mark.parametrize("attempts", [3, 4, 999_999_999])
def test_what_was_tried_often_enough_stays(attempts: int) -> None:
    with pytest.raises(ConflictError, match="fewer than 3 attempts") as error:
        put_back(refused(attempts), None, attempts_max=3)
    assert error.value.reason == "attempts_spent"


@pytest.mark.parametrize("topic", sorted({*TOPICS, "another.topic", ""} - INPUT_TOPICS))
def test_nothing_goes_to_a_topic_that_is_no_input(topic: str) -> None:
    with pytest.raises(RejectedError) as error:
        put_back(refused(source_topic=topic), None, attempts_max=3)
    assert error.value.reason == "not_an_input"
    assert TRAINING not in INPUT_TOPICS


def test_a_tombstone_stays() -> None:
    with pytest.raises(RejectedError, match="tombstone"):
        put_back(refused(value=None), None, attempts_max=3)


def test_the_key_chooses_the_partition_but_for_what_is_written_to_a_named_one() -> None:
    def partition(meant: Any, source: int = 5) -> int | None:
        return put_back(refused(source_partition=source), meant, attempts_max=3).partition

    assert partition(a_feedback_reported()) is None, "which mends a wrong partition"
    assert partition(an_erasure_requested()) == 5
    assert partition(an_erasure_requested(), source=-1) is None


def test_a_count_that_somebody_wrote_wrongly_is_none() -> None:
    for value in (b"", b"x", b"-1", None, b"9" * 40):
        event = refused(headers=(Header(name=ATTEMPTS_HEADER, value=value),))
        assert attempts_of(event) == 0


def test_of_a_record_refused_again_only_the_latest_refusal_is_tried() -> None:
    first, again, other = at(1, refused()), at(7, refused(1)), at(3, refused(value=OriginalBytes(b"other")))
    for order in ([first, again, other], [again, first, other]):
        latest = LatestOfEach(2)
        for refusal in order:
            latest.take(refusal)
        assert [one.offset for one in latest.all()] == [7, 3]
    with pytest.raises(RejectedError, match="at most 2 records"):
        latest.take(at(9, refused(value=OriginalBytes(b"a third"))))
    assert likeness(first.event) == likeness(again.event) != likeness(other.event)


def test_refusals_are_counted_and_the_newest_come_first() -> None:
    listing = Listing(deque(maxlen=2))
    for offset, reason in enumerate(("bad_json", "bad_json", "too_old")):
        listing.take(at(offset, refused(reason=reason, stage="session")))
    assert listing.counts == {
        ("bad_json", "session", INTERACTIONS): 2,
        ("too_old", "session", INTERACTIONS): 1,
    }
    assert [one.offset for one in listing.ordered()] == [2, 1]
    text = io.StringIO()
    console = Console(file=text, width=300)
    console.print(counts_table(listing.counts))
    console.print(refusals_table([(one, "now") for one in listing.ordered()]))
    lines = text.getvalue().splitlines()
    assert lines[1].split() == ["2", "bad_json", "session", INTERACTIONS]
    assert lines[4].split()[:3] == ["0@2", "now", "too_old"]


def test_a_list_of_nothing_is_one_line_without_headers(capsys: pytest.CaptureFixture[str]) -> None:
    show_list({}, [], is_narrowed=False)
    assert capsys.readouterr().out == "nothing was refused\n"
    show_list({("too_old", "session", INTERACTIONS): 2}, [], is_narrowed=False)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_what_is_wanted_is_told_by_reason_topic_and_record() -> None:
    event = refused(reason="bad_json")
    assert Wanted().has(event)
    assert Wanted(reason="bad_json", topic=INTERACTIONS, likeness=likeness(event)).has(event)
    assert not Wanted(reason="too_old").has(event)
    assert not Wanted(topic=EXPERIENCE).has(event)
    other = Wanted(likeness=likeness(refused(value=OriginalBytes(b"other"))))
    assert (other.may_have(event), other.has(event)) == (True, False)
    assert not Wanted(likeness=likeness(refused(key=OriginalBytes(b"other")))).may_have(event)


@pytest.mark.parametrize("is_event", [True, False])
def test_the_bytes_of_a_refusal_are_shown_only_when_asked_for(is_event: bool) -> None:
    report = a_feedback_reported(feedback=b'"' + SECRET + b'"')
    value = encode(report) if is_event else SECRET
    header = Header(name="who", value=SECRET)
    refusal = at(1, refused(value=OriginalBytes(value), headers=(header,)))
    meant = report if is_event else None
    closed = json.dumps([refusal_object(refusal), refusal_whole(refusal, meant, with_text=False)])
    assert SECRET.decode() not in closed
    assert SECRET.hex() not in closed
    whole = refusal_whole(refusal, meant, with_text=True)
    assert bytes.fromhex(whole["value_hex"]) == value
    assert SECRET.decode() in json.dumps(whole)
    assert whole["type"] == ("FeedbackReported" if is_event else None)
