"""The network cuts where it likes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sse import SseParser
from schemas.errors import UnavailableError

DATA = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=30)
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def written(data: list[str], line_end: str, noise: str) -> bytes:
    pieces = []
    for number, text in enumerate(data):
        if number % 3 == 2:
            pieces.append(f": {noise}{line_end}event: x{line_end}")
        pieces.append(f"data: {text}{line_end}{line_end}")
    return "".join(pieces).encode()


def cut(whole: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(whole), *(place % (len(whole) + 1) for place in cuts)})
    return [whole[a:b] for a, b in pairwise(at)]


@given(st.lists(DATA, max_size=8), LINE_ENDS, st.lists(st.integers(0, 10_000), max_size=40), DATA)
def test_events_come_out_whole_however_they_were_cut(
    data: list[str], line_end: str, cuts: list[int], noise: str
) -> None:
    whole = written(data, line_end, noise)
    parser = SseParser()
    found = [event for piece in cut(whole, cuts) for event in parser.feed(piece)]
    assert found == [text.encode() for text in data]


@given(st.lists(DATA, min_size=1, max_size=4), LINE_ENDS)
def test_one_byte_at_a_time_changes_nothing(data: list[str], line_end: str) -> None:
    parser = SseParser()
    whole = written(data, line_end, "é")
    found = [event for byte in whole for event in parser.feed(bytes([byte]))]
    assert found == [text.encode() for text in data]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"\n\n\ndata: a\n\n", [b"a"]),
        (b": ping\n\n", []),
        (b"event: x\n\n", []),
        (b"data: a", []),
    ],
)
def test_the_standards_corner_cases(stream: bytes, events: list[bytes]) -> None:
    assert SseParser().feed(stream) == events


def test_an_event_without_end_is_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.sse.EVENT_BYTES_MAX", 100)
    parser = SseParser()
    parser.feed(b"data: " + b"x" * 90)
    with pytest.raises(UnavailableError):
        parser.feed(b"x" * 90)
