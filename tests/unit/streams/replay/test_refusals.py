"""What a replay refuses, and its manifest, which says the same again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RejectedError
from schemas.records import Bounds, Place
from schemas.topics import COMMANDS, EXPERIENCE, INTERACTIONS, OUTCOMES, RELEASES, TOPICS, TRAINING
from streams.replay.change import Change
from streams.replay.destination import names_of, replay_topic
from streams.replay.manifest import Manifest, differences, read_manifest
from streams.replay.ranges import checked, read_point

PLACES = [Place(topic, number) for topic in (INTERACTIONS, EXPERIENCE) for number in range(3)]


def a_manifest(**changes: object) -> Manifest:
    fields: dict[str, object] = {
        "ranges": {place: Bounds(start=place.partition, end=10) for place in PLACES},
        "schemas": {"InferenceCompleted": "00ff"},
        "change": Change(recipe="a.b:C", options={"max_staleness": 2, "streams.join_window_s": 60}),
        "recipes": {"capitals": "5d" * 32},
        "code": "1+abc",
        "writer": "pyarrow 1",
    }
    return Manifest(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_no_live_topic_is_ever_named(topic: str) -> None:
    """Whatever the suffix: and what is a command or a swap has no replay topic at all."""
    for suffix in ("a", "2026-10", "x" * 40):
        if topic in (EXPERIENCE, TRAINING, OUTCOMES):
            assert replay_topic(topic, suffix) == f"{topic}.replay.{suffix}"
            assert replay_topic(topic, suffix) not in TOPICS
        else:
            with pytest.raises(RejectedError, match="a replay states nothing else"):
                replay_topic(topic, suffix)


@pytest.mark.parametrize("suffix", ["", "v1 ", "A", "a.b", "../x", TRAINING, COMMANDS, RELEASES, "x" * 41])
def test_a_target_that_is_no_suffix_is_refused(suffix: str) -> None:
    with pytest.raises(RejectedError, match="no live topic is ever written"):
        names_of(suffix)


bounds = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(
    lambda pair: Bounds(start=min(pair), end=max(pair))
)


@given(st.lists(bounds, min_size=6, max_size=6), st.lists(bounds, min_size=6, max_size=6))
def test_a_range_is_taken_exactly_when_the_log_holds_all_of_it(
    wanted: list[Bounds], held: list[Bounds]
) -> None:
    asked, has = dict(zip(PLACES, wanted, strict=True)), dict(zip(PLACES, held, strict=True))
    is_held = all(
        have.start <= want.start and want.end <= have.end for want, have in zip(wanted, held, strict=True)
    )
    if is_held:
        assert checked(asked, has) == asked
    else:
        with pytest.raises(RejectedError) as refused:
            checked(asked, has)
        begins_before = [want.start < have.start for want, have in zip(wanted, held, strict=True)]
        assert (refused.value.reason == "before_log_start") <= any(begins_before)


def test_a_range_of_another_cluster_is_refused() -> None:
    has = {place: Bounds(start=0, end=10) for place in PLACES}
    with pytest.raises(RejectedError, match="another cluster"):
        checked(dict(list(has.items())[:-1]), has)


@pytest.mark.parametrize(
    ("text", "offset", "time_us"),
    [
        ("0", 0, None),
        ("17", 17, None),
        ("1970-01-02", None, 86_400_000_000),
        ("1970-01-01T00:00:01.5Z", None, 1_500_000),
        ("1970-01-01T02:00:00+02:00", None, 0),
    ],
)
def test_a_point_is_an_offset_or_a_time(text: str, offset: int | None, time_us: int | None) -> None:
    point = read_point(text, "--from")
    assert (point.offset, point.time_us) == (offset, time_us)


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "2026-13-01", "1.5"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(RejectedError, match="--from: expected an offset, or a time"):
        read_point(text, "--from")


def test_a_manifest_says_the_same_again() -> None:
    manifest = a_manifest()
    again = read_manifest(manifest.text())
    assert again == manifest
    assert again.digest() == manifest.digest()
    assert differences(again, manifest) == ()
    (warning,) = differences(manifest, a_manifest(code="2+def"))
    assert "1+abc" in warning
    assert "2+def" in warning
    assert a_manifest(change=Change()).digest() != manifest.digest()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"version": 2}', a_manifest().text().replace("from", "to")]
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(RejectedError, match="manifest"):
        read_manifest(text)
