"""What falls due comes in order, once, and never early, whatever was put in between."""

from hypothesis import given
from hypothesis import strategies as st

from streams.deadlines import Deadlines

Puts = list[tuple[str, int]]


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 5_000_000)), max_size=30),
    st.lists(st.integers(0, 6_000_000), min_size=1, max_size=8),
    st.integers(1, 3),
)
def test_what_is_due_is_what_a_list_would_tell(puts: Puts, times: list[int], limit: int) -> None:
    placed: dict[str, tuple[int, int]] = {}
    deadlines = Deadlines(placed.get)
    for offset, (key, deadline_us) in enumerate(puts):
        placed[key] = (deadline_us, offset)
        deadlines.put(key, deadline_us, offset)
        if offset % 3 == 0:
            deadlines.earliest_us()
    for now_us in sorted(times):
        while True:
            expected = sorted((*place, key) for key, place in placed.items() if place[0] <= now_us)[:limit]
            assert deadlines.due(now_us, limit) == expected
            assert deadlines.due(now_us, limit) == expected, "it stays until it is gone"
            if not expected:
                break
            for _, _, key in expected:
                del placed[key]
        assert deadlines.earliest_us() == min((place[0] for place in placed.values()), default=None)


def test_a_key_put_again_is_due_at_its_new_time_only() -> None:
    placed = {"a": (1_000, 0)}
    deadlines = Deadlines(placed.get)
    deadlines.put("a", 1_000, 0)
    placed["a"] = (9_000_000, 0)
    deadlines.put("a", 9_000_000, 0)
    assert deadlines.due(8_000_000, 10) == []
    assert deadlines.due(9_000_000, 10) == [(9_000_000, 0, "a")]
