from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from gateway.calls import Recorder
from schemas.errors import RejectedError, UnavailableError
from schemas.events import Event, FeedbackReported
from schemas.topics import INTERACTIONS
from tests.builders import a_feedback_reported
from tests.fakes import MemoryLog
from tests.gateway_rig import MemoryRecorder
from tests.unit.gateway.test_outbox import a_report, an_outbox, until_emptied

Fill = Callable[[], Awaitable[None]]
Kept = Callable[[], Awaitable[list[Event]]]


class Recording:
    """A recorder, and how to fill it and to look into it."""

    def __init__(self, recorder: Recorder, fill: Fill, kept: Kept) -> None:
        self.recorder, self.fill, self.kept = recorder, fill, kept


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[Recording]:
    recorder = MemoryRecorder()

    async def fill() -> None:
        recorder.is_full = True

    async def kept() -> list[Event]:
        return recorder.events

    yield Recording(recorder, fill, kept)


@asynccontextmanager
async def on_disk(folder: Path) -> AsyncIterator[Recording]:
    log = MemoryLog()
    async with an_outbox(folder, log, bytes_max=1024 * 1024, when_full="refuse") as outbox:

        async def fill() -> None:
            log.is_up = False
            await outbox.append(*[a_report(number, padding=10_000) for number in range(110)])

        async def kept() -> list[Event]:
            await until_emptied(outbox)
            return log.events(INTERACTIONS)

        yield Recording(outbox, fill, kept)
        log.is_up = True


@pytest.fixture(params=[in_memory, on_disk])
async def recording(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Recording]:
    opened: AbstractAsyncContextManager[Recording] = request.param(tmp_path)
    async with opened as found:
        yield found


async def test_events_are_kept_in_the_order_of_their_appends(recording: Recording) -> None:
    reports = [a_report(number) for number in range(20)]
    for report in reports:
        await recording.recorder.append(report)
    await recording.recorder.append(*[a_report(number) for number in range(20, 30)])
    kept = await recording.kept()
    ids = [event.report_id for event in kept if isinstance(event, FeedbackReported)]
    assert ids == [f"report-{number}" for number in range(30)]


async def test_an_event_that_the_contract_does_not_allow_keeps_its_companions_out(
    recording: Recording,
) -> None:
    with pytest.raises(RejectedError):
        await recording.recorder.append(a_report(1), a_feedback_reported(score=float("nan")))
    assert await recording.kept() == []


async def test_a_full_recorder_refuses_at_the_door_and_keeps_what_is_appended(recording: Recording) -> None:
    recording.recorder.refuse_when_full()
    await recording.fill()
    with pytest.raises(UnavailableError) as refused:
        recording.recorder.refuse_when_full()
    assert refused.value.reason == "outbox_full"
    await recording.recorder.append(a_report(999))
