import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from gateway.outbox import FILE_NAME, Outbox, OutboxOptions
from gateway.outbox_metrics import OutboxMetrics
from gateway.outbox_rows import OutboxRows, row_of
from gateway.outbox_writer import ROWS_HERE_MAX
from schemas.claims import CLAIM_CHECK_THRESHOLD_BYTES
from schemas.codec import BlobsNeededError, decode
from schemas.errors import RejectedError, UnavailableError
from schemas.events import EventRejected, FeedbackReported, InferenceCompleted
from schemas.ids import ReportId, Route
from schemas.packed import JsonBytes
from schemas.topics import INTERACTIONS, REJECTED
from tests.builders import a_feedback_reported, an_inference_completed
from tests.fakes import MemoryBlobs, MemoryLog, MemoryProducer

DEADLINE_S = 20.0


@asynccontextmanager
async def an_outbox(
    folder: Path,
    log: MemoryLog,
    *,
    blobs: MemoryBlobs | None = None,
    registry: CollectorRegistry | None = None,
    **changes: object,
) -> AsyncIterator[Outbox]:
    options = OutboxOptions(**{"folder": folder, "num_partitions": 8} | changes)  # type: ignore[arg-type]
    metrics = OutboxMetrics(registry or CollectorRegistry())
    outbox = Outbox(options, open_producer=log.open_producer, blobs=blobs or MemoryBlobs(), metrics=metrics)
    async with outbox:
        yield outbox


def a_report(number: int, *, route: int = 0, padding: int = 0) -> FeedbackReported:
    return a_feedback_reported(
        report_id=ReportId(f"report-{number}"),
        route=Route(f"{route:016x}"),
        feedback=JsonBytes(b'"' + b"x" * padding + b'"'),
    )


def numbers(log: MemoryLog, route: int) -> list[int]:
    events = [event for event in log.events(INTERACTIONS) if isinstance(event, FeedbackReported)]
    return [int(event.report_id.split("-")[1]) for event in events if int(event.route, 16) == route]


async def until_emptied(outbox: Outbox) -> None:
    assert await outbox.drain(DEADLINE_S), "the outbox was not emptied"


async def test_what_is_appended_reaches_the_log_and_leaves_the_outbox(tmp_path: Path) -> None:
    log = MemoryLog()
    call = an_inference_completed()
    async with an_outbox(tmp_path, log) as outbox:
        await outbox.append(call)
        await until_emptied(outbox)
    assert log.events(INTERACTIONS) == [call]
    assert outbox.num_events == 0
    assert outbox.size_bytes == 0


async def test_the_order_of_each_key_holds_through_failures_of_the_log(tmp_path: Path) -> None:
    log = MemoryLog()
    async with an_outbox(tmp_path, log) as outbox:
        for number in range(300):
            await outbox.append(a_report(number, route=number % 5))
            if number % 60 == 30:
                log.failures_ahead = 2
        await until_emptied(outbox)
    assert log.num_opened > 8, "no sender had to start again: nothing was tested"
    for route in range(5):
        assert numbers(log, route) == list(range(route, 300, 5))


async def test_an_absent_log_fails_no_append_and_gets_everything_when_it_is_back(tmp_path: Path) -> None:
    log = MemoryLog()
    log.is_up = False
    async with an_outbox(tmp_path, log) as outbox:
        await asyncio.gather(*[outbox.append(a_report(number)) for number in range(50)])
        assert outbox.num_events == 50
        assert outbox.oldest_age_s() > 0
        log.is_up = True
        await until_emptied(outbox)
    assert numbers(log, 0) == list(range(50))


async def test_what_a_dead_process_left_is_shipped_at_the_next_start(tmp_path: Path) -> None:
    rows = OutboxRows(tmp_path / FILE_NAME, durability="process", num_partitions=8)
    rows.prepare()
    rows.insert([row_of(a_report(number)) for number in range(200)], now_us=1)
    rows.close()
    log = MemoryLog()
    async with an_outbox(tmp_path, log) as outbox:
        await until_emptied(outbox)
    assert numbers(log, 0) == list(range(200))


async def test_rows_find_their_lane_again_when_the_number_of_partitions_changed(tmp_path: Path) -> None:
    rows = OutboxRows(tmp_path / FILE_NAME, durability="process", num_partitions=8)
    rows.prepare()
    rows.insert([row_of(a_report(number, route=number % 7)) for number in range(70)], now_us=1)
    rows.close()
    log = MemoryLog()
    async with an_outbox(tmp_path, log, num_partitions=1) as outbox:
        await until_emptied(outbox)
    for route in range(7):
        assert numbers(log, route) == list(range(route, 70, 7))


async def test_events_appended_together_are_kept_together_or_not_at_all(tmp_path: Path) -> None:
    log = MemoryLog()
    async with an_outbox(tmp_path, log) as outbox:
        with pytest.raises(RejectedError):
            await outbox.append(a_report(1), a_feedback_reported(score=float("nan")))
        await outbox.append(a_report(2))
        await until_emptied(outbox)
    assert numbers(log, 0) == [2]


@pytest.mark.parametrize("num_events", [1, ROWS_HERE_MAX + 1])
async def test_an_append_whose_caller_left_is_kept_all_the_same(tmp_path: Path, num_events: int) -> None:
    log, numbered = MemoryLog(), range(num_events)
    async with an_outbox(tmp_path, log) as outbox:
        task = asyncio.create_task(outbox.append(*(a_report(n, route=1) for n in numbered)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while outbox.num_events == 0 and not log.events(INTERACTIONS):
            await asyncio.sleep(0)
        await outbox.append(a_report(0))
        await until_emptied(outbox)
    assert (numbers(log, 1), numbers(log, 0)) == ([*numbered], [0])


async def test_many_events_are_kept_while_the_loop_goes_on(tmp_path: Path) -> None:
    """A disk that takes its time holds up who waits for it, not the loop, which here ends the wait itself."""
    log, numbered = MemoryLog(), range(ROWS_HERE_MAX + 1)
    async with an_outbox(tmp_path, log) as outbox:
        with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            many = asyncio.create_task(outbox.append(*(a_report(n) for n in numbered)))
            while not outbox._writer._held.locked():
                assert not many.done()
                await asyncio.sleep(0)
            other.execute("ROLLBACK")
            await many
        await until_emptied(outbox)
    assert numbers(log, 0) == [*numbered]


async def test_a_full_outbox_drops_the_oldest_and_says_so_for_each(tmp_path: Path) -> None:
    log = MemoryLog()
    log.is_up = False
    registry = CollectorRegistry()
    async with an_outbox(tmp_path, log, registry=registry, bytes_max=1024 * 1024) as outbox:
        for number in range(300):
            await outbox.append(a_report(number, route=number % 5, padding=10_000))
            assert outbox.size_bytes <= 1024 * 1024
        assert outbox.is_full
        log.is_up = True
        await until_emptied(outbox)
        assert not outbox.is_full
    kept = {number for route in range(5) for number in numbers(log, route)}
    refused = [event for event in log.events(REJECTED) if isinstance(event, EventRejected)]
    num_dropped = registry.get_sample_value("reef_gateway_outbox_dropped_events_total")
    assert num_dropped == len(refused) == 300 - len(kept) > 0
    assert kept == set(range(len(refused), 300)), "the oldest go first"
    assert {event.reason for event in refused} == {"outbox_full"}
    assert {event.source_topic for event in refused} == {INTERACTIONS}
    assert all(event.key is not None and event.value is None for event in refused)


async def test_a_full_outbox_that_refuses_drops_nothing(tmp_path: Path) -> None:
    log = MemoryLog()
    log.is_up = False
    async with an_outbox(tmp_path, log, bytes_max=1024 * 1024, when_full="refuse") as outbox:
        for number in range(110):
            outbox.refuse_when_full() if number < 90 else None
            await outbox.append(a_report(number, padding=10_000))
        with pytest.raises(UnavailableError, match="try again"):
            outbox.refuse_when_full()
        log.is_up = True
        await until_emptied(outbox)
        outbox.refuse_when_full()
    assert numbers(log, 0) == list(range(110))
    assert log.events(REJECTED) == []


async def test_dropping_the_oldest_refuses_no_call(tmp_path: Path) -> None:
    log = MemoryLog()
    log.is_up = False
    async with an_outbox(tmp_path, log, bytes_max=1024 * 1024) as outbox:
        await asyncio.gather(*[outbox.append(a_report(number, padding=10_000)) for number in range(200)])
        assert outbox.is_full
        outbox.refuse_when_full()
        log.is_up = True
        await until_emptied(outbox)


async def test_a_row_refused_for_good_leaves_the_line_and_blocks_nobody(tmp_path: Path) -> None:
    log = MemoryLog()
    log.is_up = False
    async with an_outbox(tmp_path, log, num_partitions=1) as outbox:
        for number in range(20):
            await outbox.append(a_report(number, route=number % 4))
        log.refused = {(INTERACTIONS, f"{2:016x}".encode())}
        log.is_up = True
        await until_emptied(outbox)
    assert [numbers(log, route) for route in range(4)] == [
        list(range(0, 20, 4)),
        list(range(1, 20, 4)),
        [],
        list(range(3, 20, 4)),
    ]
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        dead = db.execute("SELECT value FROM dead ORDER BY seq").fetchall()
    db.close()
    assert [decode(value).report_id for (value,) in dead] == [f"report-{n}" for n in range(2, 20, 4)]  # type: ignore[union-attr]


async def test_a_row_refused_for_good_becomes_an_event_with_its_bytes(tmp_path: Path) -> None:
    log = MemoryLog()
    report = a_report(1)
    log.refused = {(INTERACTIONS, report.route.encode())}
    async with an_outbox(tmp_path, log) as outbox:
        await outbox.append(report)
        await until_emptied(outbox)
    (refused,) = log.events(REJECTED)
    assert isinstance(refused, EventRejected)
    assert refused.stage == "outbox"
    assert refused.value is not None
    assert decode(refused.value) == report


async def test_large_fields_are_written_as_blobs_before_the_record_that_names_them(tmp_path: Path) -> None:
    log, blobs = MemoryLog(), MemoryBlobs()
    blobs.is_up = False
    body = JsonBytes(b'{"text":"' + b"x" * 2 * CLAIM_CHECK_THRESHOLD_BYTES + b'"}')
    call = an_inference_completed(request=body)
    async with an_outbox(tmp_path, log, blobs=blobs) as outbox:
        await outbox.append(call)
        assert await outbox.waiting(INTERACTIONS, call.route.encode()), "it waits whole"
        assert log.records == []
        blobs.is_up = True
        await until_emptied(outbox)
    (value,) = log.values(INTERACTIONS)
    assert len(value) < CLAIM_CHECK_THRESHOLD_BYTES
    with pytest.raises(BlobsNeededError) as needed:
        decode(value)
    fetched = {ref.sha256: blobs.data[ref.uri] for ref in needed.value.refs}
    decoded = decode(value, fetched)
    assert isinstance(decoded, InferenceCompleted)
    assert decoded == call


async def test_a_stop_while_the_log_is_away_keeps_everything_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.outbox.DRAIN_S_MAX", 0.1)
    log = MemoryLog()
    log.is_up = False
    async with an_outbox(tmp_path, log) as outbox:
        await outbox.append(*[a_report(number) for number in range(1_000)])
    log.is_up = True
    async with an_outbox(tmp_path, log) as outbox:
        assert outbox.num_events + len(numbers(log, 0)) >= 1_000
        await until_emptied(outbox)
    assert numbers(log, 0) == list(range(1_000))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(st.integers(0, 3), st.sampled_from(["fail", "down", "up"])), min_size=1, max_size=40
    )
)
async def test_whatever_the_log_does_each_key_is_whole_and_in_order(
    tmp_path: Path, steps: list[int | str]
) -> None:
    log = MemoryLog()
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    sent: dict[int, list[int]] = {}
    async with an_outbox(folder, log, num_partitions=2) as outbox:
        for number, step in enumerate(steps):
            match step:
                case "fail":
                    log.failures_ahead += 1
                case "down" | "up":
                    log.is_up = step == "up"
                case int():
                    sent.setdefault(step, []).append(number)
                    await outbox.append(a_report(number, route=step))
        log.is_up, log.failures_ahead = True, 0
        await until_emptied(outbox)
    assert {route: numbers(log, route) for route in sent} == sent
    assert all(a < b for route in sent for a, b in pairwise(numbers(log, route)))


class BuggyLog(MemoryLog):
    """A log whose first producer has a bug of ours."""

    has_bug = True

    @asynccontextmanager
    async def open_producer(self) -> AsyncIterator[MemoryProducer]:
        """Raise what nobody expects, once."""
        if self.has_bug:
            self.has_bug = False
            raise ZeroDivisionError
        async with super().open_producer() as producer:
            yield producer


async def test_a_bug_in_a_sender_is_shouted_and_the_lane_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.lasting.RESTART_S", 0.01)
    log, registry = BuggyLog(), CollectorRegistry()
    async with an_outbox(tmp_path, log, registry=registry) as outbox:
        await outbox.append(a_report(1))
        await until_emptied(outbox)
    assert numbers(log, 0) == [1]
    assert registry.get_sample_value("reef_gateway_outbox_send_errors_total", {"reason": "bug"}) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_bug_in_the_writer_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def insert(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with an_outbox(tmp_path, MemoryLog(), durability="disk") as outbox:
        monkeypatch.setattr(OutboxRows, "insert", insert)
        for _ in range(2):
            with pytest.raises(UnavailableError) as failed:
                await outbox.append(a_report(1))
            assert failed.value.reason == "outbox_ended"


async def test_a_disk_that_refuses_is_told_to_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def insert(*_: object, **__: object) -> None:
        raise UnavailableError("expected a disk, got none", reason="outbox_unusable")

    log = MemoryLog()
    async with an_outbox(tmp_path, log) as outbox:
        with monkeypatch.context() as patched:
            patched.setattr(OutboxRows, "insert", insert)
            with pytest.raises(UnavailableError, match="expected a disk"):
                await outbox.append(a_report(1))
        assert (outbox.num_events, outbox.size_bytes) == (0, 0)
        await outbox.append(a_report(2))
        await until_emptied(outbox)
    assert numbers(log, 0) == [2]


async def test_a_bug_while_the_loop_commits_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def insert(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with an_outbox(tmp_path, MemoryLog()) as outbox:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        with monkeypatch.context() as patched:
            patched.setattr(OutboxRows, "insert", insert)
            outcomes = await asyncio.gather(
                *(outbox.append(a_report(n)) for n in range(5)), return_exceptions=True
            )
        assert {type(outcome) for outcome in outcomes} <= {UnavailableError, ZeroDivisionError}
        await outbox.append(a_report(9))


async def test_what_one_turn_of_the_loop_appends_is_committed_together_and_in_order(tmp_path: Path) -> None:
    log = MemoryLog()
    async with an_outbox(tmp_path, log) as outbox:
        await asyncio.gather(*(outbox.append(a_report(n)) for n in range(200)))
        await until_emptied(outbox)
    assert numbers(log, 0) == list(range(200))
