"""`kill -9` at every point of a publication: one release, one event by its id, no tag or branch left over."""

import asyncio
import os
import signal
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess

import pytest

from release.head import tag_of
from schemas.events import CandidateEvaluated, Event, ReleasePublished, SwapRequested
from tests.builders import a_promote_candidate, a_roll_back_release
from tests.release_rig import UNTIL_S_MAX, ReleaseRig, has_seq, id_of, rig_from, words_of

pytestmark = [pytest.mark.kafka, pytest.mark.lakefs, pytest.mark.faults]

NUM_KILLS = 3
POINTS = ("branched", "uploaded", "committed", "evaluated", "merged", "tagged", "announced")
CREATION_POINTS = tuple(point for point in POINTS if point != "evaluated")


def serve_until(words: str, point: str, count: int) -> None:
    """Run a worker that kills itself when it passes the point for the `count`-th time."""
    passes = 0

    def passed(at: str) -> None:
        nonlocal passes
        passes += at == point
        if passes == count:
            os.kill(os.getpid(), signal.SIGKILL)

    async def serve() -> None:
        async with rig_from(words).running(passed=passed):
            await asyncio.Event().wait()

    asyncio.run(serve())


def start_worker(rig: ReleaseRig, point: str, count: int) -> ForkServerProcess:
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.release_rig"])
    worker = context.Process(target=serve_until, args=(words_of(rig), point, count))
    worker.start()
    return worker


async def killed(rig: ReleaseRig, point: str, count: int = 1) -> None:
    """Run a worker until it kills itself."""
    worker = start_worker(rig, point, count)
    await asyncio.to_thread(worker.join, UNTIL_S_MAX)
    assert worker.exitcode == -signal.SIGKILL


async def killed_or_done(rig: ReleaseRig, point: str, seq: int) -> None:
    """Run a worker until it kills itself, or has nothing more to do for this release."""
    worker = start_worker(rig, point, 1)
    await rig.until(lambda events: has_seq(events, seq), stops=lambda: not worker.is_alive())
    worker.kill()
    await asyncio.to_thread(worker.join)


async def assert_all_is_in_order(rig: ReleaseRig, num_releases: int) -> None:
    releases = await rig.releases()
    assert [release.seq for release in releases] == list(range(num_releases))
    expected_tags = {tag_of(release.seq): release.release_id for release in releases}
    assert await rig.chain.tags() == expected_tags
    events = await rig.until(lambda events: has_seq(events, num_releases - 1), copies=True)
    by_id: dict[tuple[str, str], Event] = {}
    for event in events:
        assert by_id.setdefault(id_of(event), event) == event
    kinds = [type(event) for event in by_id.values()]
    assert kinds.count(ReleasePublished) == num_releases
    assert kinds.count(SwapRequested) == num_releases - 1


async def assert_no_branches_are_left(rig: ReleaseRig) -> None:
    """A worker that starts once more finds nothing to do, and leaves nothing of what the dead ones staged."""
    async with rig.running(), asyncio.timeout(30):
        while await rig.chain.branches():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_killed_at_any_point_leads_to_one_release(rig: ReleaseRig, point: str) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
    candidate = rig.candidate(1, first.release_id)
    await rig.publish(candidate)
    await killed(rig, point)
    for _ in range(NUM_KILLS - 1):
        await killed_or_done(rig, point, 1)
    async with rig.running():
        release = await rig.until_seq(1)
    assert release.candidate_id == candidate.candidate_id
    await assert_all_is_in_order(rig, 2)
    await assert_no_branches_are_left(rig)


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_a_worker_killed_between_events_writes_the_others_too(rig: ReleaseRig, count: int) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
    await rig.publish(rig.candidate(1, first.release_id))
    await killed(rig, "announced", count)
    async with rig.running():
        await rig.until_seq(1)
        events = await rig.until(lambda events: has_seq(events, 1))
    assert [type(event) for event in events] == [
        ReleasePublished,
        CandidateEvaluated,
        ReleasePublished,
        SwapRequested,
    ]
    await assert_all_is_in_order(rig, 2)


@pytest.mark.parametrize("point", CREATION_POINTS)
async def test_a_worker_killed_while_it_makes_release_0_leads_to_one(rig: ReleaseRig, point: str) -> None:
    await killed(rig, point)
    await killed_or_done(rig, point, 0)
    async with rig.running():
        await rig.until_seq(0)
    await assert_all_is_in_order(rig, 1)


@pytest.mark.parametrize("point", CREATION_POINTS)
async def test_a_command_leads_to_one_release_whenever_the_worker_dies(rig: ReleaseRig, point: str) -> None:
    async with rig.evaluating(publish="review").running():
        first = await rig.until_seq(0)
        held = rig.candidate(1, first.release_id)
        await rig.publish(held)
        await rig.verdict(held)
    at_us = first.published_at_us
    await rig.publish(
        a_promote_candidate(scenario=rig.scenario, candidate_id=held.candidate_id, requested_at_us=at_us)
    )
    await killed(rig, point)
    async with rig.running():
        await rig.until_seq(1)
    await rig.publish(
        a_roll_back_release(
            scenario=rig.scenario,
            target_release_id=first.release_id,
            expected_head_release_id=None,
            requested_at_us=at_us,
        )
    )
    await killed(rig, point)
    async with rig.running():
        await rig.until_seq(2)
    await assert_all_is_in_order(rig, 3)
