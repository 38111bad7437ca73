"""Pure: scenarios with their recipes: which options count, and what is said of them in the log.

A scenario with reef's recipe takes reef's options and its own over them, one with another recipe its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from schemas.canonical import canonical
from schemas.events import ScenarioConfigured, TrainingTarget
from schemas.ids import ScenarioName
from schemas.packed import JsonBytes
from schemas.recipe import Recipe, RecipeOptions, load_recipe, recipe_digest
from schemas.settings.reef import ReefSettings, ScenarioSettings
from schemas.settings.streams import StreamsSettings
from schemas.settings.tree import Settings

FOLD_KEYS: Final = (
    "join_window_s",
    "orphan_window_s",
    "orphans_max",
    "dedup_window_s",
    "buffer_max_age_s",
    "buffer_experiences_max",
    "max_calls_per_route",
)
"""Keys of `streams` that the folds read, from the log alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario with everything decided."""

    name: ScenarioName
    """Its name."""
    recipe: str
    """Dotted path of its recipe."""
    options: RecipeOptions
    """Of the recipe's `options_type`."""
    target: TrainingTarget
    """What training changes."""


def scenarios_of(settings: Settings) -> tuple[Scenario, ...]:
    """Decide every configured scenario. Raises RejectedError when a recipe cannot be loaded."""
    return tuple(scenario_of(settings, written) for written in settings.reef.scenarios)


def scenario_of(settings: Settings, written: ScenarioSettings) -> Scenario:
    """Decide one scenario, configured or created later by name."""
    recipe = written.recipe or settings.reef.recipe
    options = load_recipe(recipe).options_type.model_validate(options_given(settings.reef, written))
    target = TrainingTarget(written.target or settings.training.target)
    return Scenario(name=written.name, recipe=recipe, options=options, target=target)


def beside(configured: Iterable[Scenario], other: Scenario) -> Scenario:
    """Let a scenario that no file names leave the engine's weights to the one of the file that trains them.

    An engine has one set of weights (RULINGS 5): what would train them too only records.
    """
    full = TrainingTarget.FULL
    is_taken = other.target is full and any(one.target is full for one in configured)
    return replace(other, target=TrainingTarget.NONE) if is_taken else other


def options_given(reef: ReefSettings, written: ScenarioSettings) -> dict[str, JsonValue]:
    """Lay a scenario's options over reef's, if both speak to one recipe."""
    shared: Mapping[str, JsonValue] = reef.options if (written.recipe or reef.recipe) == reef.recipe else {}
    return {**shared, **written.options}


def recipe_of(scenario: Scenario) -> Recipe:
    """Make the scenario's recipe."""
    return load_recipe(scenario.recipe)(scenario.options)


def scenario_configured(
    scenario: Scenario, streams: StreamsSettings, *, configured_at_us: int, is_retired: bool = False
) -> ScenarioConfigured:
    """State a scenario as folds, trainers and release read it (STREAMS 15)."""
    options = scenario.options.model_dump(mode="json")
    body = {"recipe": options, "streams": streams.model_dump(mode="json", include=set(FOLD_KEYS))}
    return ScenarioConfigured(
        scenario=scenario.name,
        recipe=scenario.recipe,
        recipe_digest=recipe_digest(scenario.recipe, options),
        options=JsonBytes(canonical(body)),
        target=scenario.target,
        is_retired=is_retired,
        configured_at_us=configured_at_us,
    )
