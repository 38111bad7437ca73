"""Shell: the scenarios of this deployment: announced in the log, learned from it; what each asks of reports.

Not their serving: gateway/catalog.py has what the request path reads, and this adds names to it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import structlog
from pydantic import ValidationError

from gateway.catalog import Catalog
from gateway.reports import ReportRules
from gateway.views import Views
from schemas.errors import RejectedError
from schemas.events import Event, ScenarioConfigured, TrainingTarget
from schemas.ids import ScenarioName, scenario_name
from schemas.recipe import Recipe, Report, load_recipe
from schemas.settings.scenarios import Scenario, beside, recipe_of, scenario_configured
from schemas.settings.streams import StreamsSettings

CREATED_BY_CALLS_MAX = 1_000
"""Scenarios beyond which a call makes no further one; an operator can."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Recorder(Protocol):
    """Where events are kept: the outbox."""

    async def append(self, *events: Event) -> None:
        """Keep events, all or none; returns when they are durable. Raises UnavailableError."""

    def refuse_when_full(self) -> None:
        """Raise UnavailableError when nothing new may begin."""

    async def waiting(self, topic: str, key: bytes) -> Sequence[bytes]:
        """Give the encoded events under a key that the log does not have yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownScenario:
    """A scenario with its recipe made."""

    scenario: Scenario
    """Everything decided."""
    recipe: Recipe
    """Its recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """What scenarios need of the settings."""

    configured: Sequence[Scenario]
    """Those of the file."""
    make: Callable[[ScenarioName], Scenario]
    """Decides a scenario that is created by name."""
    streams: StreamsSettings
    """Windows and limits, which go into the log."""
    receipt_keys: Sequence[bytes]
    """Prove receipts."""
    score_abs_max: float
    """Largest absolute score."""


class Scenarios:
    """Every scenario that is known here."""

    def __init__(self, options: ScenarioOptions, *, catalog: Catalog, recorder: Recorder) -> None:
        """Begin with those of the file. Raises RejectedError when a recipe cannot be loaded."""
        self._options, self._catalog, self._recorder = options, catalog, recorder
        self._known = {
            scenario.name: KnownScenario(scenario=scenario, recipe=recipe_of(scenario))
            for scenario in options.configured
        }
        for name in self._known:
            catalog.add(name)

    async def announce(self) -> None:
        """Write the scenarios of the file into the log, as it is done at every start (STREAMS 15)."""
        await self._recorder.append(
            *(self._event(known.scenario) for known in self._known.values() if self._is_configured(known))
        )

    def _is_configured(self, known: KnownScenario) -> bool:
        return any(known.scenario.name == scenario.name for scenario in self._options.configured)

    def _event(self, scenario: Scenario) -> ScenarioConfigured:
        return scenario_configured(scenario, self._options.streams, configured_at_us=time.time_ns() // 1000)

    async def recall(self, views: Views) -> None:
        """Learn the scenarios that were created before this start, or by another gateway since."""
        for name, facts in (await views.configured()).items():
            self._learn(
                ScenarioName(name),
                recipe=facts["recipe"],
                options=orjson.loads(facts["options"])["recipe"],
                target=TrainingTarget(facts["target"]),
                is_retired=facts["is_retired"],
            )

    def _learn(
        self, name: ScenarioName, *, recipe: str, options: Any, target: TrainingTarget, is_retired: bool
    ) -> None:
        if any(name == scenario.name for scenario in self._options.configured):
            return  # the file decides its own
        try:
            scenario = Scenario(
                name=name,
                recipe=recipe,
                options=load_recipe(recipe).options_type.model_validate(options),
                target=target,
            )
            scenario = beside(self._options.configured, scenario)
            self._known[name] = KnownScenario(scenario=scenario, recipe=recipe_of(scenario))
        except (RejectedError, ValidationError) as error:
            _log.warning("scenario_not_usable", scenario=name, recipe=recipe, detail=str(error))
            return
        self._catalog.add(name).is_retired = is_retired

    async def create(self, text: str) -> tuple[KnownScenario, bool]:
        """Give a scenario and whether it was made just now. Raises RejectedError on a bad name."""
        name = scenario_name(text)
        state = self._catalog.get(name)
        if name in self._known and state is not None and not state.is_retired:
            return self._known[name], False
        scenario = self._options.make(name)
        known = KnownScenario(scenario=scenario, recipe=recipe_of(scenario))
        await self._recorder.append(self._event(scenario))
        self._known[name] = known
        self._catalog.add(name).is_retired = False
        return known, True

    async def create_by_call(self, text: str) -> None:
        """Create a scenario that a call names. Raises RejectedError on a bad name, or one too many."""
        if len(self._known) >= CREATED_BY_CALLS_MAX:
            raise RejectedError(
                f"expected at most {CREATED_BY_CALLS_MAX} scenarios made by calls, got one more: "
                "create it with POST /reef/scenarios",
                reason="too_many_scenarios",
            )
        await self.create(text)

    def get(self, name: ScenarioName) -> KnownScenario:
        """Give a scenario of the catalog. Raises RejectedError when its recipe cannot be used here."""
        known = self._known.get(name)
        if known is None:
            raise RejectedError(
                f"expected a scenario whose recipe is installed here, got {name!r}: install it",
                reason="no_such_scenario",
            )
        return known

    def rules(self, name: ScenarioName) -> ReportRules:
        """Say what a scenario asks of its reports."""
        return ReportRules(
            scenario=name,
            schema=self.get(name).recipe.report,
            score_abs_max=self._options.score_abs_max,
            receipt_keys=self._options.receipt_keys,
        )

    def why_untrained(self, name: ScenarioName, report: Report) -> str | None:
        """Say why a report trains nothing; None when it may."""
        known = self.get(name)
        if known.scenario.target is TrainingTarget.NONE:
            return "this scenario records only: training.target is none"
        if known.recipe.reward(report) is None:
            return "the recipe reads no reward from it: give a score, or a text listed in feedback_scores"
        return None
