"""Shell: how far behind a worker is, asked of the broker every few seconds."""

import asyncio
from collections.abc import Callable, Collection
from time import time_ns

import structlog

from schemas.bus import KafkaAccess, Reader
from schemas.errors import ConflictError, UnavailableError
from streams.batch_state import BatchState
from streams.drive import Partition
from streams.metrics import StreamMetrics

MEASURED_EVERY_S = 5.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def keep_measuring(
    access: KafkaAccess, partitions: Callable[[], Collection[Partition]], metrics: StreamMetrics
) -> None:
    """Measure until cancelled; while the broker is away the gauges stay as they are."""
    while True:
        try:
            async with Reader(access) as reader:
                while True:
                    await _measure(reader, partitions(), metrics)
                    await asyncio.sleep(MEASURED_EVERY_S)
        except (ConflictError, UnavailableError) as error:
            _log.warning("lag_unknown", reason=error.reason)
        await asyncio.sleep(MEASURED_EVERY_S)


async def _measure(reader: Reader, partitions: Collection[Partition], metrics: StreamMetrics) -> None:
    ends = await reader.bounds([partition.place for partition in partitions])
    now_us = time_ns() // 1_000
    for name, gauges in metrics.of.items():
        ours = [each for each in partitions if each.processor.name == name]
        lags = [max(0, ends[each.place].end - each.next_offset) for each in ours]
        states = [each.state for each in ours if each.state is not None]
        behind = [each.state.now_us for each, lag in zip(ours, lags, strict=True) if lag and each.state]
        gauges.lag.set(sum(lags))
        gauges.pending.set(sum(state.num_pending() for state in states))
        if name == "batch":
            show_queues([state for state in states if isinstance(state, BatchState)], metrics)
        gauges.watermark_age.set(max([(now_us - at_us) / 1e6 for at_us in behind if at_us], default=0.0))


def show_queues(states: Collection[BatchState], metrics: StreamMetrics) -> None:
    """Show what waits of each scenario that is ours now, and no longer what went to another worker."""
    found = [(state, name) for state in states for name in state.scenario_names()]
    metrics.waiting.clear()
    metrics.in_flight.clear()
    for state, name in found:
        metrics.waiting.labels(name).inc(state.num_waiting(name))
        metrics.in_flight.labels(name).inc(state.progress(name).batch_id is not None)
