"""Pure: a scenario as the folds know it: its recipe, windows and limits, all of it from the log (STREAMS 15).

Not configuration: settings become ScenarioConfigured elsewhere; what is not in that event decides nothing.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from schemas.errors import RejectedError
from schemas.events import OutcomeReason, ScenarioConfigured, TrainingTarget
from schemas.ids import ScenarioName, Sha256
from schemas.packed import JsonBytes
from schemas.recipe import Recipe
from schemas.settings.streams import StreamsSettings

LoadRecipe = Callable[[str], type[Recipe]]
"""From a dotted path to the recipe's class. Raises RejectedError."""

VERSION = 1
_UNCORRECTABLE = frozenset({OutcomeReason.OPTED_OUT, OutcomeReason.NOT_TOKEN_EXACT})
"""The one is a promise; without the other's tokens there is nothing to correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a scenario learns, how, and how long it waits."""

    name: ScenarioName
    """Its name."""
    recipe_path: str
    """Dotted path of the recipe."""
    recipe_digest: Sha256
    """Of path and options."""
    options: JsonBytes
    """As in the event."""
    target: TrainingTarget
    """What training changes."""
    is_retired: bool
    """Nothing new is learned."""
    recipe: Recipe
    """Made of the path and the options."""
    limits: StreamsSettings
    """Windows and limits."""

    def corrects(self, reason: OutcomeReason) -> bool:
        """Whether the recipe can learn from a call in spite of this."""
        return reason in self.recipe.corrects and reason not in _UNCORRECTABLE


def configure(event: ScenarioConfigured, load_recipe: LoadRecipe) -> Scenario:
    """Make a scenario of what the log says. Raises RejectedError when recipe or options cannot be used."""
    try:
        options = json.loads(event.options)
        recipe_type = load_recipe(event.recipe)
        recipe = recipe_type(recipe_type.options_type.model_validate(options.get("recipe", {})))
        limits = StreamsSettings.model_validate(_known_limits(options.get("streams", {})))
    except (ValueError, AttributeError, ValidationError) as error:
        raise RejectedError(
            f"expected options that {event.recipe} and `streams` take, got others: {error}: "
            "correct the configuration and start again",
            reason="bad_options",
        ) from error
    return Scenario(
        name=event.scenario,
        recipe_path=event.recipe,
        recipe_digest=event.recipe_digest,
        options=event.options,
        target=event.target,
        is_retired=event.is_retired,
        recipe=recipe,
        limits=limits,
    )


def _known_limits(given: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a newer writer may have added: the log outlives versions."""
    return {name: value for name, value in given.items() if name in StreamsSettings.model_fields}


def pack_scenario(scenario: Scenario | None) -> bytes:
    """Write a scenario's entry; None for one that has calls but no configuration yet."""
    fields: dict[str, Any] = {"version": VERSION}
    if scenario is not None:
        fields |= {
            "recipe": scenario.recipe_path,
            "recipe_digest": scenario.recipe_digest,
            "options": scenario.options.decode(),
            "target": scenario.target.value,
            "is_retired": scenario.is_retired,
        }
    return json.dumps(fields, sort_keys=True).encode()


def unpack_scenario(name: ScenarioName, data: bytes, load_recipe: LoadRecipe) -> Scenario | None:
    """Read a scenario's entry; None for one without a configuration. Raises ValueError."""
    return None if "recipe" not in _fields(data) else unpack_configured(name, data, load_recipe)


def unpack_configured(name: ScenarioName, data: bytes, load_recipe: LoadRecipe) -> Scenario:
    """Read a configured scenario's entry. Raises ValueError on an entry of another version."""
    fields = _fields(data)
    event = ScenarioConfigured(
        scenario=name,
        recipe=fields["recipe"],
        recipe_digest=Sha256(fields["recipe_digest"]),
        options=JsonBytes(fields["options"].encode()),
        target=TrainingTarget(fields["target"]),
        is_retired=fields["is_retired"],
        configured_at_us=0,
    )
    return configure(event, load_recipe)


def _fields(data: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(data)
    if fields.get("version") != VERSION:
        raise ValueError(
            f"expected a scenario's entry of version {VERSION}, got {fields.get('version')}: "
            "run reef streams --rebuild"
        )
    return fields
