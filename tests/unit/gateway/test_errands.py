import asyncio
import socket
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError, RecordTooLargeError
from pydantic import SecretStr

from gateway.errands import (
    KINDS,
    Carry,
    Done,
    Errand,
    Follow,
    News,
    Start,
    error_of,
    failure_of,
)
from gateway.frames import Frames
from schemas.bus import KafkaAccess, is_of_record
from schemas.errors import ReefError
from schemas.events import Header
from schemas.records import Outgoing


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize("cause", [None, RecordTooLargeError("large"), KafkaConnectionError("away")])
def test_an_error_that_crosses_over_means_the_same(
    kind: type[ReefError], cause: BaseException | None
) -> None:
    error = kind("expected a, got b: do c", reason="word")
    error.__cause__ = cause
    crossed = error_of(failure_of(error))
    assert (type(crossed), crossed.reason, str(crossed)) == (kind, "word", "expected a, got b: do c")
    assert is_of_record(crossed) == is_of_record(error)


async def test_messages_arrive_whole_and_in_order_until_the_other_end_is_gone() -> None:
    ours, theirs = socket.socketpair()
    one: Frames[News] = await Frames.over(ours, News)
    other: Frames[Errand] = await Frames.over(theirs, Errand)
    access = KafkaAccess(bootstrap="a:1", username="ada", password=SecretStr("pass"), ca_file=Path("/ca.pem"))
    records = (
        Outgoing(topic="t", key=b"", value=None, partition=3),
        Outgoing(topic="t", key=b"k", value=b"x" * 5_000_000, headers=(Header(name="n", value=b"\xff"),)),
    )
    errands: list[Errand] = [
        Start(access=access, blobs_url="file:///b"),
        Follow(folder=Path("/views"), num_partitions=8),
        Carry(errand=1, producer=2, records=records),
    ]
    for errand in errands:
        one.send(errand)
    other.send(Done(errand=1, failure=None))
    async with asyncio.timeout(20):
        assert await one.receive() == Done(errand=1, failure=None)
        one.close()
        got = [await other.receive() for _ in errands]
        assert await other.receive() is None
    assert got[:2] == errands[:2]
    assert isinstance(got[2], Carry)
    assert [(each.value, tuple(each.headers)) for each in got[2].records] == [
        (each.value, tuple(each.headers)) for each in records
    ]
    other.close()
