"""Workers on a real broker: the whole chain, rule by rule; the log is folded again as the judge."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from time import time_ns

import pytest

from deploy.embedded.kafka import Kafka
from schemas.bus import TransactionalPublisher
from schemas.events import (
    BatchSealed,
    ClockTicked,
    EventRejected,
    ExperienceAssembled,
    OutcomeReason,
    OutcomeSettled,
    OutcomeState,
    ScenarioConfigured,
)
from schemas.records import Outgoing
from schemas.topics import EXPERIENCE, INTERACTIONS, OUTCOMES, REJECTED, TRAINING
from streams.topology import SESSION_TIMEOUT_S
from tests.streams_ledger import Ledger
from tests.streams_rig import Rig, a_conversation, a_rig, play_trainer
from tests.unit.streams.test_batch import an_experience

NUM_PROCESSORS = 5
"""Of the topology: sessions, batches and three relays."""
STOPPED_EVERY = 5
"""After so many kills a worker is stopped in order as well."""

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def rig(kafka_factory: Callable[[], Kafka], tmp_path: Path) -> AsyncIterator[Rig]:
    """A broker of one's own: topics have the names that they have everywhere."""
    async with a_rig(kafka_factory().bootstrap, tmp_path) as rig:
        yield rig


async def feed(rig: Rig, name: str, num_conversations: int, num_calls: int = 3) -> int:
    now_us = time_ns() // 1_000
    sent = []
    for number in range(num_conversations):
        for call, report in a_conversation(f"{name}-{number}", num_calls, now_us):
            sent += [await rig.publisher.send(call), await rig.publisher.send(report)]
    for delivery in sent:
        await delivery
    return num_conversations * num_calls


async def test_calls_and_reports_become_trained_batches(rig: Rig) -> None:
    await rig.configure(batch_size=8, max_staleness=100)
    rig.start_worker()
    stop = asyncio.Event()
    trainer = asyncio.ensure_future(play_trainer(rig, stop))
    num_calls = await feed(rig, "chain", 20)
    outcomes = await rig.until(OUTCOMES, OutcomeSettled, num_calls - 7)
    stop.set()
    await trainer
    await rig.settled()
    assert {each.state for each in outcomes} == {OutcomeState.TRAINED, OutcomeState.DROPPED}
    assert {each.reason for each in outcomes} == {None, OutcomeReason.TRAINING_FAILED}
    assert len({each.receipt for each in outcomes}) == len(outcomes)


async def test_what_was_aborted_reaches_no_fold(rig: Rig) -> None:
    """STREAMS 1 and 5: and the gaps that it leaves are no loss."""
    await rig.configure(batch_size=4)
    rig.start_worker()
    await rig.until(EXPERIENCE, object, 2)
    async with TransactionalPublisher(rig.access, "another-writer", blobs=rig.blobs) as writer:
        for number in range(60):
            is_given_up = number % 3 == 2
            with suppress(AbortedOnPurposeError):
                async with writer.transaction():
                    await write_three(rig, writer, 3 * number, is_given_up)
    await rig.until(TRAINING, BatchSealed, 1)
    await rig.settled()
    assert sum(rig.by_hand.values()) == len(await rig.events(EXPERIENCE, ExperienceAssembled)) == 120


async def write_three(rig: Rig, writer: TransactionalPublisher, first: int, is_given_up: bool) -> None:
    for number in range(first, first + 3):
        event = an_experience(1_000 + number)
        await writer.send(event)
        rig.by_hand[rig.as_written(event, EXPERIENCE)] += not is_given_up
    if is_given_up:
        raise AbortedOnPurposeError


class AbortedOnPurposeError(Exception):
    """A transaction that its writer gives up."""


async def test_pending_calls_of_a_quiet_partition_expire_after_a_restart(rig: Rig) -> None:
    """STREAMS 2: a partition is opened when it is assigned, whether or not an event comes."""
    streams = {"join_window_s": 5, "orphan_window_s": 5, "dedup_window_s": 10}
    await rig.configure(streams=streams)
    first = rig.start_worker()
    await rig.until(INTERACTIONS, ScenarioConfigured, rig.num_partitions)
    ((call, _),) = a_conversation("quiet", 1, time_ns() // 1_000)
    await rig.publisher.publish(call)
    await rig.settled()
    rig.kill(first)
    rig.start_worker()
    (outcome,) = await rig.until(OUTCOMES, OutcomeSettled, 1)
    assert (outcome.receipt, outcome.reason) == (call.receipt, OutcomeReason.NO_FEEDBACK)


async def test_a_worker_joins_and_the_first_is_killed_and_each_call_takes_effect_once(
    kafka_factory: Callable[[], Kafka], tmp_path: Path
) -> None:
    """CASES 6 with its numbers; STREAMS 3, 4, 11.

    What a worker keeps is not loaded again, a clean stop loses nothing, no tick is written before a deadline,
    and a batch that trains for longer than any session lasts moves nobody out of the group.
    """
    async with a_rig(kafka_factory().bootstrap, tmp_path, num_partitions=8) as rig:
        await rig.configure(batch_size=32, max_staleness=1_000)
        first, stop = rig.start_worker(), asyncio.Event()
        trainer = asyncio.ensure_future(play_trainer(rig, stop, first_batch_s=SESSION_TIMEOUT_S + 5))
        await feed(rig, "one", 100)
        await rig.until(EXPERIENCE, ExperienceAssembled, 300)
        opened = rig.log_text().count("partition_opened")
        second = rig.start_worker()
        await rig.until_said("partition_opened", opened + 1)
        feeding = asyncio.ensure_future(feed(rig, "two", 700, num_calls=1))
        await rig.until(EXPERIENCE, ExperienceAssembled, 400)
        kept = NUM_PROCESSORS * rig.num_partitions - (rig.log_text().count("partition_opened") - opened)
        assert kept > 0, "what was kept was opened again"
        rig.kill(first)
        await feeding
        made = await rig.until(EXPERIENCE, ExperienceAssembled, 1_000)
        assert len({receipt for each in made for receipt in each.receipts}) == len(made) == 1_000
        outcomes = await rig.until(OUTCOMES, OutcomeSettled, 96)
        assert len({each.receipt for each in outcomes}) == len(outcomes)
        stop.set()
        await trainer
        await rig.settled()
        assert second.poll() is None
        rig.kill(second, signal.SIGTERM)
        assert second.returncode == 0
        assert await rig.events(INTERACTIONS, ClockTicked) == await rig.events(EXPERIENCE, ClockTicked) == []


async def test_what_is_no_event_is_refused_with_its_bytes_and_the_rest_goes_on(rig: Rig) -> None:
    await rig.configure()
    rig.start_worker()
    poison = {b"": b"key", b"\xc3\x01" + b"12345678" + b"body": b"unknown", b"x" * 900_000: b"oversize"}
    for value, key in poison.items():
        await rig.publisher.publish_record(Outgoing(topic=INTERACTIONS, key=key, value=value, partition=0))
    await feed(rig, "after", 5)
    await rig.until(EXPERIENCE, ExperienceAssembled, 15)
    refused = await rig.until(REJECTED, EventRejected, 3)
    assert {each.value: each.key for each in refused} == poison
    assert {each.source_topic for each in refused} == {INTERACTIONS}
    await rig.settled()


async def test_ten_kills_lose_nothing_and_double_nothing(rig: Rig) -> None:
    await kill_again_and_again(rig, num_kills=10, num_conversations=400, seed=1)


async def kill_again_and_again(rig: Rig, *, num_kills: int, num_conversations: int, seed: int) -> None:
    """Two workers, live traffic, kills at random and a stop now and then; a trainer that goes on.

    Judged twice, over the whole chain and as committed: the folds fold every log again, and every call that
    was sent is looked for.
    """
    chance, ledger = Random(seed), Ledger()
    await rig.configure(batch_size=16, max_staleness=1_000)
    rig.start_worker()
    rig.start_worker()
    stop = asyncio.Event()
    trainer = asyncio.ensure_future(play_trainer(rig, stop))
    supervisor = asyncio.ensure_future(rig.supervise())
    for number in range(num_kills):
        name, traffic = f"round-{number}", Random(f"{seed}-{number}")
        feeding = asyncio.ensure_future(ledger.feed(rig, name, num_conversations // num_kills, traffic))
        await asyncio.sleep(chance.uniform(2, 9))
        rig.kill(chance.choice(rig.alive()))
        rig.start_worker()
        if number % STOPPED_EVERY == STOPPED_EVERY - 1:
            rig.kill(chance.choice(rig.alive()), signal.SIGTERM)
            rig.start_worker()
        await feeding
    await ledger.feed(rig, "last", 10, chance)
    await rig.until(EXPERIENCE, ExperienceAssembled, ledger.num_samples, within_s=240)
    stop.set()
    await trainer
    await rig.settled(within_s=240)
    supervisor.cancel()
    await ledger.check(rig)
    assert "fold_failed" not in rig.log_text()
