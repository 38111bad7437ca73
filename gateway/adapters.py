"""Shell: low-rank adapters, swapped without a pause: the new one is loaded and asked, the old one unloaded.

A name is never used twice and never loaded over: a running answer keeps the adapter that it began with.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from gateway.catalog import Catalog
from gateway.stage import Stage
from gateway.target import Target, adapter_name
from gateway.weight_routes import WeightRoutes
from schemas.errors import ReefError
from schemas.ids import ScenarioName

LOOK_S_MAX = 10.0
DRAIN_POLL_S = 0.2
"""Between two looks whether somebody still asks an adapter."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Adapters:
    """The adapters of all scenarios on all engines of this gateway."""

    def __init__(self, catalog: Catalog, stage: Stage, *, deadline_s: float) -> None:
        """Begin with none loaded."""
        self._catalog, self._stage, self._deadline_s = catalog, stage, deadline_s
        self._draining: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Leave those that are still asked loaded; they go with the engine."""
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)

    async def bring(self, target: Target, folder: Path, engines: Sequence[WeightRoutes]) -> None:
        """Load a release's adapter wherever it is missing, then let it answer. Raises ReefError."""
        name = adapter_name(target)
        for engine in engines:
            if name not in await engine.models(LOOK_S_MAX):
                await engine.load_adapter(name, folder, self._deadline_s)
        self._flip(target, name, engines)

    def leave(self, target: Target, engines: Sequence[WeightRoutes]) -> None:
        """Let the base model itself answer: release 0 of a scenario that trains an adapter."""
        self._flip(target, self._stage.base_model, engines)

    def _flip(self, target: Target, name: str, engines: Sequence[WeightRoutes]) -> None:
        before = self._catalog.add(target.scenario).serving
        self._stage.put_above(target, name)
        if before is None or before.engine_model in (name, self._stage.base_model):
            return
        task = asyncio.create_task(self._unload(target.scenario, before.engine_model, tuple(engines)))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _unload(self, scenario: ScenarioName, name: str, engines: Sequence[WeightRoutes]) -> None:
        streams = self._catalog.add(scenario).streams
        while streams.num_on(name):  # noqa: ASYNC110 - `serving` is pure: nobody there sets an event
            await asyncio.sleep(DRAIN_POLL_S)
        for engine in engines:
            try:
                await engine.unload_adapter(name, LOOK_S_MAX)
            except ReefError as error:
                _log.warning("adapter_not_unloaded", adapter=name, engine=engine.url, reason=error.reason)
