"""A program that ends is started again, later each time, and given up when its policy says so."""

from hypothesis import given
from hypothesis import strategies as st

from deploy.restarts import EMBEDDED, OWN_SERVICE, RestartPolicy, recent, restart_delay_s

_NOW_S = 10_000.0
_ages = st.lists(st.floats(0, 1_000), min_size=1, max_size=12)


def _ends(ages_s: list[float]) -> list[float]:
    return sorted(_NOW_S - age_s for age_s in ages_s)


def test_an_embedded_program_is_started_three_times_in_five_minutes_and_not_a_fourth() -> None:
    ends_s: list[float] = []
    delays = []
    for end_s in (0.0, 100.0, 200.0, 299.0):
        ends_s.append(end_s)
        delays.append(restart_delay_s(EMBEDDED, ends_s, end_s))
    assert delays == [0.5, 1.0, 2.0, None]


def test_an_end_is_forgotten_after_five_minutes() -> None:
    assert restart_delay_s(EMBEDDED, [0.0, 100.0, 200.0, 300.0], 300.0) == 2.0


@given(_ages)
def test_an_embedded_program_is_given_up_exactly_when_more_than_three_ends_are_recent(
    ages_s: list[float],
) -> None:
    ends_s = _ends(ages_s)
    num_recent = sum(_NOW_S - end_s < EMBEDDED.window_s for end_s in ends_s)
    assert (restart_delay_s(EMBEDDED, ends_s, _NOW_S) is None) == (num_recent > 3)


@given(_ages)
def test_our_own_service_is_never_given_up_and_waits_half_a_minute_at_most(ages_s: list[float]) -> None:
    delay_s = restart_delay_s(OWN_SERVICE, _ends(ages_s), _NOW_S)
    assert delay_s is not None
    assert 0.5 <= delay_s <= 30.0


@given(_ages)
def test_one_more_end_never_shortens_the_wait(ages_s: list[float]) -> None:
    ends_s = _ends(ages_s)
    before = restart_delay_s(OWN_SERVICE, ends_s, _NOW_S)
    after = restart_delay_s(OWN_SERVICE, [*ends_s, _NOW_S], _NOW_S)
    assert before is not None
    assert after is not None
    assert after >= before


def test_many_ends_at_once_still_give_a_number() -> None:
    policy = RestartPolicy(restarts_max=None, window_s=1.0, delay_s_first=1.0, delay_s_max=7.0)
    assert restart_delay_s(policy, [0.0] * 5_000, 0.0) == 7.0


def test_only_recent_ends_are_kept() -> None:
    assert recent(EMBEDDED, [0.0, 1.0, 300.5], 301.0) == (300.5,)
