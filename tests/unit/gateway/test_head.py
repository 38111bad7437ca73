"""What headers say is never read as a wish for more than the client wished."""

import pytest

from gateway.head import read_head
from schemas.errors import RejectedError


@pytest.mark.parametrize("values", [(b"true", b"false"), (b"false", b"true"), (b"1",)])
def test_a_wish_said_twice_is_taken_for_the_more_careful_one(values: tuple[bytes, ...]) -> None:
    assert read_head((b"x-reef-no-train", value) for value in values).is_opted_out is True
    assert read_head((b"x-reef-no-record", value) for value in values).is_recorded is False


def test_without_a_wish_a_call_is_recorded_and_may_train() -> None:
    head = read_head([(b"x-reef-no-train", b"false"), (b"x-reef-no-record", b"0")])
    assert (head.is_opted_out, head.is_recorded) == (False, True)


def test_two_scenarios_in_one_request_are_refused_and_an_empty_one_is_none() -> None:
    name = b"x-reef-scenario"
    with pytest.raises(RejectedError, match="got two that differ"):
        read_head([(name, b"a"), (name, b"b")])
    assert read_head([(name, b"a"), (name, b"A ")]).scenario == "a"
    assert read_head([(name, b"")]).scenario is None
