"""Shell: whoever writes the outbox, the loop or one thread, commits what has gathered in one transaction.

The thread syncs, deletes and takes over what comes meanwhile. Where nothing is synced the loop commits what
one of its turns appended by itself: handing it over and back costs more than the commit.

Not a pool: SQLite takes one writer, and a group costs one commit however many wait for it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Literal

import structlog

from gateway.outbox_metrics import OutboxMetrics
from gateway.outbox_rows import ROWS_PER_INSERT, NewRow, OutboxRows, Row, row_of
from schemas.errors import ReefError, UnavailableError
from schemas.events import EventRejected
from schemas.ids import derived_id
from schemas.packed import OriginalBytes
from schemas.topics import REJECTED

RARE_S = 0.001
"""An append that comes so long after the one before it has nobody to share a commit with."""
ROWS_HERE_MAX = 128
"""More are written by the thread, which lets the loop go on: a report may judge a thousand calls."""
GROUP_ROWS_MAX = 512
"""Rows committed at once at most."""

WhenFull = Literal["drop_oldest", "refuse"]
"""What happens at the limit: the oldest events go, or new calls are refused at the door."""
_FULL = "expected room in the outbox, got none: bring Kafka back, or raise reef.outbox_bytes_max"

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Claims:
    """What senders hold in their hands, by lane: rows up to here are not dropped."""

    def __init__(self, num_lanes: int) -> None:
        self.lock = threading.Lock()
        self.through = [0] * num_lanes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Append:
    rows: Sequence[NewRow]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Delete:
    lane: int
    through_seq: int
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bury:
    row: Row
    reason: str
    detail: str
    done: asyncio.Future[None]


_Job = _Append | _Delete | _Bury


@dataclass(slots=True, kw_only=True)
class _Group:
    jobs: list[_Job] = field(default_factory=list)
    num_rows: int = 0
    is_last: bool = False


class OutboxWriter:
    """Owns the writing connection; its methods are called in the event loop and answer by futures."""

    def __init__(
        self,
        rows: OutboxRows,
        *,
        bytes_max: int,
        when_full: WhenFull,
        syncs: bool,
        metrics: OutboxMetrics,
        on_committed: Callable[[], None],
    ) -> None:
        self._rows = rows
        self._bytes_max = bytes_max
        self._when_full = when_full
        self._metrics = metrics
        self._on_committed = on_committed
        self._outbox_id = rows.outbox_id
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="outbox-writer", daemon=True)
        self._silent_until_us = 0
        self.has_ended = False
        self._held = threading.Lock()  # whoever writes
        self._can_write_here = not syncs
        self._num_queued = 0
        self._gathered: list[_Append] = []
        self._last_append_s = 0.0
        self.claims = Claims(rows.num_lanes)
        self.num_rows, self.size_bytes = rows.totals()

    def start(self) -> None:
        """Begin to commit."""
        self._thread.start()

    async def stop(self) -> None:
        """Commit what is gathered and queued, then end the thread."""
        self._commit_gathered()
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def append(self, rows: Sequence[NewRow]) -> asyncio.Future[None]:
        """Keep rows, all or none. What is queued is committed even if nobody waits for it any more."""
        job = _Append(rows=rows, done=self._loop.create_future())
        now_s = self._loop.time()
        is_rare, self._last_append_s = now_s - self._last_append_s > RARE_S, now_s
        is_alone = is_rare and self._num_queued == 0 and not self._gathered and len(rows) <= ROWS_HERE_MAX
        if is_alone and self._can_write_here and self._held.acquire(blocking=False):
            # Handing one event to the thread and back costs more than keeping it: 0.05 against 0.15 ms.
            try:
                group = _Group(jobs=[job], num_rows=len(rows))
                self._resolve(group, self._commit(group))
            finally:
                self._held.release()
            return job.done
        if not self._can_write_here:
            return self._queue_append(job)
        if not self._gathered:
            self._loop.call_soon(self._commit_gathered)
        self._gathered.append(job)
        return job.done

    def _commit_gathered(self) -> None:
        """Commit what one turn of the loop appended: in place, unless the thread is at work."""
        jobs, self._gathered = self._gathered, []
        if not jobs:
            return
        num_rows = sum(len(job.rows) for job in jobs)
        if self._num_queued > 0 or num_rows > ROWS_HERE_MAX or not self._held.acquire(blocking=False):
            for job in jobs:
                self._queue_append(job)
            return
        group = _Group(jobs=[*jobs], num_rows=num_rows)
        error: ReefError | None = _dead()  # what waiters hear of a bug of ours
        try:
            error = self._commit(group)
        finally:
            self._held.release()
            self._resolve(group, error)

    def _queue_append(self, job: _Append) -> asyncio.Future[None]:
        self._num_queued += 1
        job.done.add_done_callback(self._unqueued)
        return self._queue(job)

    def _unqueued(self, _: asyncio.Future[None]) -> None:
        self._num_queued -= 1

    def delete_through(self, lane: int, through_seq: int) -> asyncio.Future[None]:
        """Forget what Kafka has."""
        return self._queue(_Delete(lane=lane, through_seq=through_seq, done=self._loop.create_future()))

    def bury(self, row: Row, *, reason: str, detail: str) -> asyncio.Future[None]:
        """Take a row that Kafka refuses for good out of the line, and say so with an EventRejected."""
        return self._queue(_Bury(row=row, reason=reason, detail=detail, done=self._loop.create_future()))

    def _queue(self, job: _Job) -> asyncio.Future[None]:
        if self.has_ended:
            job.done.set_exception(_dead())
        self._jobs.put(job)
        return job.done

    def _run(self) -> None:
        group = _Group()
        try:
            while not group.is_last:
                group = self._gather()
                with self._held:
                    error = self._commit(group)
                self._loop.call_soon_threadsafe(self._resolve, group, error)
        finally:  # also of a bug of ours: then whoever waits hears of it, and nobody waits in vain after it
            self.has_ended = True
            self._loop.call_soon_threadsafe(self._fail_waiting, group)

    def _fail_waiting(self, group: _Group) -> None:
        left = _Group(jobs=[job for job in group.jobs if not job.done.done()])
        while not self._jobs.empty():
            job = self._jobs.get_nowait()
            if job is not None:
                left.jobs.append(job)
        if left.jobs:
            self._resolve(left, _dead())

    def _gather(self) -> _Group:
        group = _Group()
        job = self._jobs.get()
        while job is not None:
            group.jobs.append(job)
            group.num_rows += len(job.rows) if isinstance(job, _Append) else 1
            if group.num_rows >= GROUP_ROWS_MAX:
                return group
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return group
        group.is_last = True
        return group

    def _resolve(self, group: _Group, error: ReefError | None) -> None:
        for job in group.jobs:
            if job.done.done():
                continue
            if error is None:
                job.done.set_result(None)
            else:
                job.done.set_exception(error)
        self._on_committed()

    def _commit(self, group: _Group) -> ReefError | None:
        now_us = time.time_ns() // 1000
        num_rows, size_bytes = self.num_rows, self.size_bytes
        try:
            with self._claims_held(group), self._transaction(group):
                self._write(group, now_us)
        except ReefError as error:
            self.num_rows, self.size_bytes = num_rows, size_bytes
            _log.error("outbox_write_failed", reason=error.reason, detail=str(error))
            return error
        return None

    def _claims_held(self, group: _Group) -> AbstractContextManager[object]:
        # Only where rows may be dropped: nothing must be claimed between choosing them and the commit.
        return self.claims.lock if self._is_beyond(group) else nullcontext()

    def _is_beyond(self, group: _Group) -> bool:
        appended = sum(row.size_bytes for job in group.jobs if isinstance(job, _Append) for row in job.rows)
        return self.size_bytes + appended > self._bytes_max

    def _transaction(self, group: _Group) -> AbstractContextManager[object]:
        # A single statement is its own transaction, and two hand-overs of the interpreter fewer.
        is_one_statement = (
            group.num_rows <= ROWS_PER_INSERT
            and all(isinstance(job, _Append) for job in group.jobs)
            and not self._is_beyond(group)
        )
        return nullcontext() if is_one_statement else self._rows.transaction()

    def _write(self, group: _Group, now_us: int) -> None:
        new: list[NewRow] = []
        for job in group.jobs:
            match job:
                case _Append():
                    new.extend(job.rows)
                case _Delete():
                    num_rows, size_bytes = self._rows.delete_through(job.lane, job.through_seq)
                    self._count(-num_rows, -size_bytes)
                case _Bury():
                    self._count(-1, -self._rows.bury(job.row, reason=job.reason, detail=job.detail))
                    new.extend(self._refusals((job.row,), job.reason, job.detail, now_us))
        new = [*self._make_room(sum(row.size_bytes for row in new), now_us), *new]
        self._rows.insert(new, now_us=now_us)
        self._count(len(new), sum(row.size_bytes for row in new))

    def _count(self, num_rows: int, size_bytes: int) -> None:
        self.num_rows += num_rows
        self.size_bytes += size_bytes

    def _make_room(self, needed_bytes: int, now_us: int) -> list[NewRow]:
        excess_bytes = self.size_bytes + needed_bytes - self._bytes_max
        if excess_bytes <= 0 or self._when_full == "refuse" or needed_bytes == 0:
            return []
        dropped = self._rows.oldest(
            above=self.claims.through, bytes_min=excess_bytes + self._bytes_max // 100
        )
        freed_bytes = self._rows.delete(dropped)
        self._count(-len(dropped), -freed_bytes)
        self._metrics.dropped(len(dropped))
        if now_us > self._silent_until_us:
            self._silent_until_us = now_us + 10_000_000
            _log.warning("outbox_dropped_oldest", num_events=len(dropped), size_bytes=freed_bytes)
        return self._refusals(dropped, "outbox_full", _FULL, now_us)

    def _refusals(self, refused: Sequence[Row], reason: str, detail: str, now_us: int) -> list[NewRow]:
        return [
            row_of(_refusal(row, self._outbox_id, reason=reason, detail=detail, now_us=now_us))
            for row in refused
            if row.topic != REJECTED  # a refused refusal is counted and logged, it has no second one
        ]


def _dead() -> UnavailableError:
    return UnavailableError(
        "expected the outbox to be written, got a writer that ended: restart the gateway",
        reason="outbox_ended",
    )


def _refusal(row: Row, outbox_id: str, *, reason: str, detail: str, now_us: int) -> EventRejected:
    return EventRejected(
        event_id=derived_id("EventRejected", outbox_id, str(row.seq)),
        stage="outbox",
        reason=reason,
        detail=detail,
        source_topic=row.topic,
        source_partition=-1,
        source_offset=-1,
        key=OriginalBytes(row.key),
        value=OriginalBytes(row.value) if row.value else None,
        headers=(),
        rejected_at_us=now_us,
    )
