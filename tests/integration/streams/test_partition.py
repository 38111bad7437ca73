"""One partition and what may happen to it: bugs, fencing, missing topics, newer writers, standing still."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from struct import pack
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from deploy.ports import free_port
from schemas.bus import BusLimits, TransactionalPublisher
from schemas.codec import encode
from schemas.contract import fingerprint_of, newest_versions, parsed
from schemas.errors import UnavailableError
from schemas.records import Outgoing
from schemas.topics import SCHEMAS_LOG
from streams import session
from streams.drive import Partition
from streams.outputs import Fetched, Output, Timed
from streams.session_state import SessionState
from streams.watchdog import Watchdog
from tests.partition_rig import WITHIN_S, EndedError, PartitionRig, a_log, a_partition_rig

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

THIRD_CALL, THIRD_REPORT = 5, 6
"""Their offsets, behind the configuration and two calls with their reports."""


@pytest.fixture
async def rig(kafka_bootstrap: str, tmp_path: Path) -> AsyncIterator[PartitionRig]:
    async with a_partition_rig(kafka_bootstrap, tmp_path) as rig:
        yield rig


@dataclass
class BreakingFold:
    """The session fold, whose step breaks at some offsets when the state has changed already."""

    breaks_at: Collection[int]
    num_breaks_max: int
    num_broken: int = 0

    def step(
        self, state: SessionState, timed: Timed, fetched: Fetched
    ) -> tuple[SessionState, tuple[Output, ...]]:
        state, outputs = session.step(state, timed, fetched)
        if timed.offset in self.breaks_at and self.num_broken < self.num_breaks_max:
            self.num_broken += 1
            raise ZeroDivisionError("broken on purpose")
        return state, outputs


async def driven(rig: PartitionRig, fold: BreakingFold) -> Partition:
    """Let a partition catch up with half of the log, then hand it the rest."""
    events = a_log()
    await rig.write(*events[: THIRD_CALL - 1])
    partition = rig.partition(rig.processor(fold.step))
    await rig.until(lambda: partition.state is not None)
    await rig.write(*events[THIRD_CALL - 1 :])
    await rig.hand_over(partition)
    await partition.close()
    return partition


async def test_a_step_that_breaks_half_way_leaves_nothing_in_the_state_and_its_event_is_refused(
    rig: PartitionRig,
) -> None:
    fold = BreakingFold({THIRD_CALL, THIRD_REPORT}, num_breaks_max=100)
    partition = await driven(rig, fold)
    await rig.is_as_folded(without=fold.breaks_at)
    assert fold.num_broken == 4, "each is tried twice, the second time on the committed state"
    assert partition.state is not None
    assert partition.state.num_pending() == 0
    log = await rig.records(rig.log)
    assert [(each.source_offset, each.reason, each.key, each.value) for each in await rig.refused()] == [
        (at, "bug", log[at].key, log[at].value) for at in (THIRD_CALL, THIRD_REPORT)
    ]


async def test_a_step_that_breaks_once_loses_nothing(rig: PartitionRig) -> None:
    """What the state in memory was spoilt by is not what the log says: the committed one takes the event."""
    fold = BreakingFold({THIRD_CALL}, num_breaks_max=1)
    await driven(rig, fold)
    await rig.is_as_folded()
    assert (fold.num_broken, await rig.refused()) == (1, [])


async def test_a_missing_topic_ends_the_process_and_nothing_is_committed(rig: PartitionRig) -> None:
    await rig.write(*a_log())
    rig.partition(replace(rig.processor(), outputs=(f"{rig.topic}.nowhere",)))
    assert f"{rig.topic}.nowhere" in await asyncio.wait_for(rig.ended, WITHIN_S)
    assert await rig.records(rig.topic) == await rig.records(rig.state) == []


async def test_a_stored_offset_that_the_log_does_not_hold_ends_the_process(rig: PartitionRig) -> None:
    """STREAMS 2: another cluster, or a topic made anew, is not folded as if nothing were missing."""
    await rig.write(*a_log())
    stored = Outgoing(topic=rig.state, key=f"@{rig.log}".encode(), value=pack("<q", 1_000), partition=0)
    await rig.publisher.publish_record(stored)
    rig.partition()
    assert "go on at offset 1001" in await asyncio.wait_for(rig.ended, WITHIN_S)
    assert await rig.records(rig.topic) == []


async def fenced(rig: PartitionRig) -> Partition:
    """A partition whose producer another one fenced, and records for it."""
    first, *rest = a_log()
    await rig.write(first)
    partition = rig.partition()
    await rig.until(lambda: partition.state is not None)
    transactional_id = f"{rig.topic}-session-{rig.log}-0"
    async with TransactionalPublisher(rig.access, transactional_id, blobs=rig.blobs):
        await rig.write(*rest)
    return partition


async def test_a_fenced_partition_that_is_still_ours_is_opened_again_and_loses_nothing(
    rig: PartitionRig,
) -> None:
    """STREAMS 3: whoever fenced it may be gone."""
    partition = await fenced(rig)
    before = partition.state
    await rig.hand_over(partition)
    await partition.close()
    await rig.is_as_folded()
    assert partition.state is not before, "loaded again"


async def test_a_fenced_partition_that_is_anothers_writes_no_more(rig: PartitionRig) -> None:
    partition = await fenced(rig)
    rig.is_assigned = False
    await partition.offer(await rig.records(rig.log))
    await rig.until(lambda: rig.num_opened("fenced") == 1)
    await partition.close()
    assert await rig.records(rig.topic) == []
    assert partition.next_offset == 1


async def test_a_gateway_upgraded_before_streams_is_understood(rig: PartitionRig) -> None:
    """STREAMS 14: its calls have a field that this fold does not know; the schema is in the log."""
    schema = json.loads(newest_versions()["InferenceCompleted"].json)
    addition = {"name": "added_later", "type": "long", "default": 0}
    newer = json.dumps(schema | {"fields": [*schema["fields"], addition]})
    fingerprint = fingerprint_of(parsed(newer))
    configuration, call, report, *_ = a_log()
    partition = rig.partition()
    await rig.publisher.publish_record(
        Outgoing(topic=SCHEMAS_LOG, key=fingerprint, value=newer.encode(), partition=0)
    )
    await rig.write(configuration)
    value = b"\xc3\x01" + fingerprint + encode(call)[10:] + b"\x0e"
    await rig.publisher.publish_record(Outgoing(topic=rig.log, key=b"any", value=value, partition=0))
    await rig.write(report)
    await rig.until(lambda: partition.state is not None)
    await rig.hand_over(partition)
    await partition.close()
    await rig.is_as_folded()
    assert len(await rig.told()) == 1


async def test_an_event_that_only_newer_streams_know_ends_the_process(rig: PartitionRig) -> None:
    """STREAMS 14: it is not passed over."""
    schema = json.dumps({"type": "record", "name": "DreamtLater", "namespace": "reef", "fields": []})
    fingerprint = fingerprint_of(parsed(schema))
    await rig.publisher.publish_record(
        Outgoing(topic=SCHEMAS_LOG, key=fingerprint, value=schema.encode(), partition=0)
    )
    dreamt = Outgoing(topic=rig.log, key=b"any", value=b"\xc3\x01" + fingerprint, partition=0)
    await rig.publisher.publish_record(dreamt)
    rig.partition()
    assert "upgrade streams first" in await asyncio.wait_for(rig.ended, WITHIN_S)
    assert await rig.records(rig.state) == []


async def test_what_faust_passes_over_is_read_from_the_log(rig: PartitionRig) -> None:
    """Once it delivered nothing of one partition for a minute; markers of transactions do not stop it."""
    rig.look_s = 0.1
    first, *rest = a_log()
    await rig.write(first)
    partition = rig.partition()
    await rig.until(lambda: partition.state is not None)
    await rig.write(*rest)
    await rig.until(lambda: partition.next_offset == 1 + len(rest))
    async with TransactionalPublisher(rig.access, f"{rig.topic}-other", blobs=rig.blobs) as other:
        with suppress(GivenUpError):
            await give_up(other, rig.log)
    await rig.write(first)
    await rig.until(lambda: partition.next_offset > 1 + len(rest))
    await partition.close()
    await rig.is_as_folded()
    assert rig.registry.get_sample_value("reef_streams_undelivered_events_total") == len(rest) + 1


async def test_the_watchdog_does_nothing_while_kafka_is_away(rig: PartitionRig) -> None:
    """STREAMS 9: waiting is right then."""
    partition = Partition(rig.processor(), 0, rig.surroundings())
    away = replace(rig.access, bootstrap=f"127.0.0.1:{free_port()}")
    barked: list[str] = []

    def bark(why: str) -> NoReturn:
        barked.append(why)
        raise EndedError(why)

    with capture_logs() as lines:
        limits = BusLimits(open_deadline_s=0.2)
        with Watchdog(away, lambda: [partition], bark, still_s_max=0.0, look_s=0.1, limits=limits):
            await rig.until(lambda: sum(one["event"] == "watchdog_sees_nothing" for one in lines) >= 2)
    assert barked == []


async def test_the_watchdog_ends_what_stands_still_while_its_log_goes_on_and_nothing_else(
    rig: PartitionRig,
) -> None:
    """STREAMS 9: it has a thread and a client of its own, and a log of markers only is no reason."""
    partition = rig.partition()
    await rig.until(lambda: partition.state is not None)
    barked: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def bark(why: str) -> NoReturn:
        loop.call_soon_threadsafe(barked.put_nowait, why)
        raise UnavailableError("the process would have ended")  # the watchdog sees nothing, and looks again

    async with TransactionalPublisher(rig.access, f"{rig.topic}-other", blobs=rig.blobs) as other:
        with suppress(GivenUpError):
            await give_up(other, rig.log)
    with Watchdog(rig.access, lambda: [partition], bark, still_s_max=0.1, look_s=0.1):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(barked.get(), 1.5)
        await rig.write(*a_log())
        assert "stood still" in await asyncio.wait_for(barked.get(), WITHIN_S)
    await partition.close()


async def test_a_watchdog_that_was_left_in_the_middle_of_a_look_ends_nothing(rig: PartitionRig) -> None:
    await rig.write(*a_log())
    partition = Partition(rig.processor(), 0, rig.surroundings())
    looked, barked = threading.Event(), list[str]()

    def partitions() -> list[Partition]:
        looked.set()
        return [partition]

    def bark(why: str) -> NoReturn:
        barked.append(why)
        raise EndedError(why)

    with Watchdog(rig.access, partitions, bark, still_s_max=0.0, look_s=0.05):
        await asyncio.to_thread(looked.wait)
    for thread in threading.enumerate():
        if thread.name == "watchdog":
            await asyncio.to_thread(thread.join)
    assert barked == []


class GivenUpError(Exception):
    """A writer gives its transaction up."""


async def give_up(writer: TransactionalPublisher, topic: str) -> None:
    async with writer.transaction():
        await writer.send_record(Outgoing(topic=topic, key=b"any", value=b"never", partition=0))
        await writer.delivered()
        raise GivenUpError
