import asyncio
import pickle
import socket

import pytest
from aiokafka.errors import KafkaConnectionError, RecordTooLargeError

from gateway.errands import KINDS, error_of, failure_of
from gateway.frames import Frames
from gateway.shipping import _is_for_good
from schemas.errors import ReefError, RejectedError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cause", [None, RecordTooLargeError("large"), KafkaConnectionError("away")])
def test_an_error_that_crosses_over_means_the_same(
    kind: type[ReefError], cause: BaseException | None
) -> None:
    error = kind("expected a, got b: do c", reason="word")
    error.__cause__ = cause
    crossed = error_of(pickle.loads(pickle.dumps(failure_of(error))))
    assert (type(crossed), crossed.reason, str(crossed)) == (kind, "word", "expected a, got b: do c")
    if isinstance(error, RejectedError) and isinstance(crossed, RejectedError):
        assert _is_for_good(crossed) == _is_for_good(error)


async def test_messages_arrive_whole_and_in_order_until_the_other_end_is_gone() -> None:
    ours, theirs = socket.socketpair()
    one, other = await Frames.over(ours), await Frames.over(theirs)
    messages = [b"", b"x" * 5_000_000, ("a", 1), None.__class__]
    for message in messages:
        one.send(message)
    one.close()
    async with asyncio.timeout(20):
        assert [await other.receive() for _ in messages] == messages
        assert await other.receive() is None
    other.close()
