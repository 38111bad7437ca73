"""Shell: the release service put together: a desk for every scenario that files or the log tell of.

The one place that names concrete parts.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import time_ns

import structlog

from release.chain import Chain
from release.desk import Means
from release.evaluate import evaluator_of
from release.gate import Shape
from release.inspection import shapes_of_model
from release.loop import run_desk
from release.metrics import ReleaseMetrics
from release.publish import Passed
from release.scenarios import told_scenarios
from release.settings import ReleaseSettings, evaluation_choice
from schemas.artifact_fetch import ARTIFACTS_FOLDER, FetchedArtifacts
from schemas.errors import RejectedError
from schemas.ids import ScenarioName

Configured = Iterable[tuple[ScenarioName, str]]
"""Scenarios and the dotted paths of their recipes."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Service:
    """The desks that run."""

    settings: ReleaseSettings
    """What all share."""
    metrics: ReleaseMetrics = field(default_factory=ReleaseMetrics)
    """What is counted."""
    passed: Passed = lambda point: None
    """Told of each point of a publication's order: tests kill there."""
    now_us: Callable[[], int] = lambda: time_ns() // 1000
    """Microseconds UTC."""
    base_shapes: Mapping[str, Shape] = field(default_factory=dict)
    """Of the base model's weights; read at the start."""

    def means(self, scenario: ScenarioName, recipe: str) -> Means:
        """Put a desk's means together. Raises RejectedError when its evaluator cannot be made."""
        settings = self.settings
        choice = evaluation_choice(settings.evaluation, recipe, live_engine=settings.live_engine)
        return Means(
            scenario=scenario,
            settings=settings,
            chain=Chain(
                settings.lakefs,
                scenario,
                storage_namespace=settings.storage_namespace,
                limits=settings.lakefs_limits,
            ),
            choice=choice,
            evaluates=evaluator_of(choice.module, choice.config, timeout_s=choice.timeout_s),
            artifacts=FetchedArtifacts(settings.state_dir / ARTIFACTS_FOLDER, settings.lakefs),
            base_shapes=self.base_shapes,
            metrics=self.metrics,
            now_us=self.now_us,
            passed=self.passed,
        )


def make_service(settings: ReleaseSettings, *, passed: Passed = lambda point: None) -> Service:
    """Read what all desks share. Raises RejectedError, UnavailableError."""
    return Service(settings=settings, passed=passed, base_shapes=shapes_of_model(settings.base.folder))


async def run_service(service: Service, configured: Configured) -> None:
    """Run a desk for each scenario `(name, recipe)`, and for those that the log tells of, until cancelled."""
    desks: dict[ScenarioName, tuple[str, asyncio.Task[None]]] = {}
    async with asyncio.TaskGroup() as group:
        for name, recipe in configured:
            desks[name] = recipe, group.create_task(run_desk(service.means(name, recipe)))
        async for told in told_scenarios(service.settings, service.passed):
            running = desks.get(told.scenario)
            if (told.is_retired and running is None) or (running and running[0] == told.recipe):
                continue
            try:
                means = service.means(told.scenario, told.recipe)
            except RejectedError as error:
                _log.error("scenario_refused", scenario=told.scenario, reason=error.reason, detail=str(error))
                continue
            if running:
                running[1].cancel()
                await asyncio.wait({running[1]})
            desks[told.scenario] = told.recipe, group.create_task(run_desk(means))
