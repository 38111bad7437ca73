"""Shell: one stream worker, put together: the table of folds, Faust, the watchdog, metrics."""

import asyncio
import gc
from collections.abc import Iterable
from contextlib import AsyncExitStack
from time import time_ns
from typing import NoReturn

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from schemas.blobs import open_blob_store
from schemas.bus import Publisher, Reader, Resolver, SchemaLog
from schemas.records import Place
from streams.gauges import keep_measuring
from streams.metrics import StreamMetrics, show_metrics
from streams.ownership import Ownership
from streams.settings import WorkerSettings
from streams.surroundings import Surroundings, end_process
from streams.topology import Listener, faust_app, processors, run_app
from streams.watchdog import Watchdog

OPENED_AT_ONCE = 8
"""Partitions opened at the same time."""
GC_THRESHOLDS = (50_000, 20, 100)
"""Rarer than Python's own: a fold's state is large and has no cycles."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Worker:
    """What a worker holds while it runs."""

    def __init__(self, settings: WorkerSettings, metrics: StreamMetrics, ownership: Ownership) -> None:
        """Hold nothing yet."""
        self._settings, self._metrics = settings, metrics
        self.ownership = ownership
        self._open = AsyncExitStack()
        self._around: Surroundings | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None

    async def assign(self, places: Iterable[Place]) -> None:
        """Take what Faust assigns, without keeping Faust waiting."""
        self.ownership.expect(places)
        if self._around is not None:
            self.ownership.take(self._around)
        elif self._beginning is None:
            self._beginning = asyncio.ensure_future(self._begin())
            self._beginning.add_done_callback(_end_on_failure)

    async def _begin(self) -> None:
        """Open what all partitions share, then the partitions that are ours by then."""
        self._around = await self._surroundings()
        self.ownership.take(self._around)
        measuring = keep_measuring(
            self._settings.access, lambda: list(self.ownership.partitions.values()), self._metrics
        )
        self._measuring = asyncio.ensure_future(measuring)

    async def stop(self) -> None:
        """End in order: partitions first, then what they share."""
        for task in (self._beginning, self._measuring):
            if task is not None:
                task.cancel()
        await self.ownership.close()
        await self._open.aclose()
        _log.info("worker_stopped")

    async def _surroundings(self) -> Surroundings:
        settings = self._settings
        blobs = open_blob_store(settings.blobs_url)
        schema_log = await self._open.enter_async_context(SchemaLog(settings.access))
        return Surroundings(
            deployment=settings.deployment,
            access=settings.access,
            blobs=blobs,
            resolver=Resolver(schema_log, blobs),
            reader=await self._open.enter_async_context(Reader(settings.access)),
            reading=asyncio.Lock(),
            opening=asyncio.Semaphore(OPENED_AT_ONCE),
            ticker=await self._open.enter_async_context(Publisher(settings.access, blobs=blobs)),
            tick_s=settings.tick_s,
            metrics=self._metrics,
            is_assigned=self.ownership.is_assigned,
            end_process=end_process,
        )


def _end_on_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        end_process(f"nothing could be opened: {error}")


def run_worker(settings: WorkerSettings) -> NoReturn:
    """Run until a signal says stop."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    if settings.metrics_port is not None:
        show_metrics(registry, settings.metrics_port)
    run_ownership(settings, StreamMetrics(registry), Ownership(processors()))


def run_ownership(settings: WorkerSettings, metrics: StreamMetrics, ownership: Ownership) -> NoReturn:
    """Run Faust with these partitions, watched, until a signal says stop."""
    worker = Worker(settings, metrics, ownership)
    gc.set_threshold(*GC_THRESHOLDS)
    settings.folder.mkdir(parents=True, exist_ok=True)
    listener = Listener(
        assign=worker.assign, revoke=ownership.revoke, deliver=ownership.deliver, stop=worker.stop
    )
    group = f"{settings.deployment}-streams"
    app = faust_app(settings, group, ownership.topics, listener)
    _log.info("worker_started", worker=settings.number, group=group, started_at_us=time_ns() // 1_000)
    with Watchdog(settings.access, lambda: list(ownership.partitions.values()), end_process):
        run_app(app)
    raise SystemExit(0)
