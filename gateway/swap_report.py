"""Shell: what is said of swaps: an event in the log, a line, a number, and what /reef/status shows."""

import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from gateway.catalog import Catalog
from gateway.swap import Swapped
from gateway.swap_failures import detail_of, failure_of
from gateway.swap_metrics import SwapMetrics
from gateway.target import Target
from schemas.errors import ReefError
from schemas.events import Event, ModelSwapped, SwapFailed, SwapFailure
from schemas.ids import GatewayId, ReleaseId

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Recorder(Protocol):
    """Where events are kept: the outbox."""

    async def append(self, *events: Event) -> None:
        """Keep events; returns when they are durable. Raises UnavailableError."""


class SwapReport:
    """Says it everywhere."""

    def __init__(
        self, *, catalog: Catalog, recorder: Recorder, metrics: SwapMetrics, gateway_id: GatewayId
    ) -> None:
        """Take the places where it is said."""
        self._catalog, self._recorder = catalog, recorder
        self._metrics, self._gateway_id = metrics, gateway_id

    async def swapped(self, target: Target, engines: Sequence[str], swapped: Swapped) -> None:
        """State that engines serve another release from here on."""
        self._catalog.add(target.scenario).swap_problem = None
        self._metrics.swapped(
            target.scenario, stage_s=swapped.stage_s, pause_s=swapped.pause_s, gap_s=swapped.gap_s
        )
        _log.info(
            "model_swapped",
            scenario=target.scenario,
            release_id=target.release_id,
            release_seq=target.release_seq,
            stage_ms=round(swapped.stage_s * 1000, 1),
            pause_ms=round(swapped.pause_s * 1000, 1),
            max_stream_gap_ms=round(swapped.gap_s * 1000, 1),
            num_bytes=swapped.num_bytes,
        )
        await self._record(*(self._event(target, engine, swapped) for engine in engines))

    def _event(self, target: Target, engine: str, swapped: Swapped) -> ModelSwapped:
        return ModelSwapped(
            swap_id=target.swap_id,
            scenario=target.scenario,
            release_id=target.release_id,
            release_seq=target.release_seq,
            gateway_id=self._gateway_id,
            engine=engine,
            num_bytes=swapped.num_bytes,
            stage_ms=swapped.stage_s * 1000,
            pause_ms=swapped.pause_s * 1000,
            max_stream_gap_ms=swapped.gap_s * 1000,
            total_ms=swapped.total_s * 1000,
            swapped_at_us=time.time_ns() // 1000,
        )

    async def failed(self, target: Target, error: ReefError, held: ReleaseId | None = None) -> None:
        """State that a swap did not happen, and what is served meanwhile."""
        state, reason, detail = self._catalog.add(target.scenario), failure_of(error), detail_of(error)
        if reason is not SwapFailure.OVERTAKEN:
            state.swap_problem = detail
        serving = state.serving.release_id if state.serving is not None else held
        self._metrics.failed(target.scenario, reason)
        _log.warning(
            "swap_failed",
            scenario=target.scenario,
            release_id=target.release_id,
            reason=reason,
            detail=detail,
        )
        await self._record(
            SwapFailed(
                swap_id=target.swap_id,
                scenario=target.scenario,
                reason=reason,
                detail=detail,
                serving_release_id=serving or ReleaseId(""),
                gateway_id=self._gateway_id,
                failed_at_us=time.time_ns() // 1000,
            )
        )

    def restarted(self, engine: str) -> None:
        """Count an engine that is ended to be started from a release's folder."""
        _log.warning("engine_restarted", engine=engine)
        self._metrics.restarted(engine)

    async def _record(self, *events: Event) -> None:
        try:
            await self._recorder.append(*events)
        except ReefError as error:
            _log.error("swap_not_recorded", reason=error.reason, detail=str(error))
