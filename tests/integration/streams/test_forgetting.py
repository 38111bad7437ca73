"""`reef forget` against workers: what was named ends as forgotten whenever it comes, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import time_ns

import pytest
import typer
from typer.testing import CliRunner

from deploy.commands.forget import forget
from deploy.configuration import OVERRIDES_ALLOWED
from deploy.embedded.kafka import Kafka
from schemas.events import ErasureRequested, ExperienceAssembled, OutcomeReason, OutcomeSettled
from schemas.topics import EXPERIENCE, OUTCOMES
from tests.streams_rig import Rig, a_conversation, a_rig
from tests.unit.streams.folding import SCENARIO

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

APP = typer.Typer()
APP.command(context_settings=OVERRIDES_ALLOWED)(forget)


@pytest.fixture
async def rig(kafka_factory: Callable[[], Kafka], tmp_path: Path) -> AsyncIterator[Rig]:
    """A broker of one's own: topics have the names that they have everywhere."""
    async with a_rig(kafka_factory().bootstrap, tmp_path) as rig:
        yield rig


async def test_a_session_that_is_forgotten_enters_no_batch_before_and_after(rig: Rig) -> None:
    await rig.configure(batch_size=100)
    rig.start_worker()
    gone, kept = (list(a_conversation(name, 3, time_ns() // 1_000)) for name in ("gone", "kept"))
    for call, report in [*gone[:2], *kept]:
        await rig.publisher.publish(call)
        await rig.publisher.publish(report)
    await rig.until(EXPERIENCE, ExperienceAssembled, 5)
    words = ["-c", str(rig.config), "-s", SCENARIO, "--session", "gone", "--json"]
    asked = await asyncio.to_thread(CliRunner().invoke, APP, words)
    assert asked.exit_code == 0, asked.exception
    told = json.loads(asked.stdout)
    assert told["calls"]["found"] == 2
    assert len(told["written"]) == rig.num_partitions
    await rig.until(EXPERIENCE, ErasureRequested, rig.num_partitions)
    for event in gone[2]:
        await rig.publisher.publish(event)
    outcomes = await rig.until(OUTCOMES, OutcomeSettled, 3)
    await rig.settled()
    assert {one.receipt: one.reason for one in outcomes} == {
        call.receipt: OutcomeReason.FORGOTTEN for call, _ in gone
    }
