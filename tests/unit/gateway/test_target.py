"""What a scenario is to serve, when a failure is tried again, and what it is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.swap_failures import failure_of
from gateway.target import RETRY_S_FIRST, RETRY_S_MAX, Target, adapter_name, newest, retry_delay_s
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.events import ArtifactKind, SwapFailure
from schemas.ids import ReleaseId, ScenarioName, Sha256, SwapId


def a_target(number: int) -> Target:
    return Target(
        swap_id=SwapId(f"swap-{number}"),
        scenario=ScenarioName("default"),
        release_id=ReleaseId(f"{number:040x}"),
        release_seq=number,
        kind=ArtifactKind.CHECKPOINT,
        artifact_uri="lakefs://reef-default/commit/",
        content_sha256=Sha256("0" * 64),
        tokenizer_digest=Sha256("1" * 64),
    )


@given(st.lists(st.integers(0, 50), min_size=1))
def test_in_whatever_order_requests_come_the_newest_wins(numbers: list[int]) -> None:
    wanted = None
    for number in numbers:
        wanted = newest(wanted, a_target(number))
    assert wanted == a_target(max(numbers))


def test_a_request_that_is_repeated_is_no_new_one() -> None:
    wanted = a_target(3)
    assert newest(wanted, a_target(3)) is wanted


@given(st.integers(1, 10_000))
def test_rests_double_from_the_first_to_the_longest(num_failures: int) -> None:
    rest_s, next_s = retry_delay_s(num_failures), retry_delay_s(num_failures + 1)
    assert RETRY_S_FIRST <= rest_s <= next_s <= RETRY_S_MAX
    assert next_s in (2 * rest_s, RETRY_S_MAX)


def test_the_first_rest_is_five_seconds_and_the_longest_five_minutes() -> None:
    assert [retry_delay_s(n) for n in (1, 2, 3)] == [5.0, 10.0, 20.0]
    assert retry_delay_s(1_000) == 300.0


def test_no_two_adapters_have_one_name() -> None:
    assert adapter_name(a_target(12)) == "default--r000012"


def caused(error: ReefError, cause: ReefError) -> ReefError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (UnavailableError("x", reason="sender_failed"), SwapFailure.SENDER_FAILED),
        (ConflictError("x", reason="overtaken"), SwapFailure.OVERTAKEN),
        (UnavailableError("x", reason="lakefs_failed"), SwapFailure.ARTIFACT_UNAVAILABLE),
        (
            caused(
                RejectedError("x", reason="artifact_unavailable"),
                RejectedError("x", reason="digest_mismatch"),
            ),
            SwapFailure.DIGEST_MISMATCH,
        ),
        (
            caused(
                RejectedError("x", reason="artifact_unavailable"), RejectedError("x", reason="missing_file")
            ),
            SwapFailure.ARTIFACT_UNAVAILABLE,
        ),
    ],
)
def test_a_failure_is_called_after_what_caused_it(error: ReefError, failure: SwapFailure) -> None:
    assert failure_of(error) is failure
