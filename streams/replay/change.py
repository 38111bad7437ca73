"""Pure: what a what-if replay changes: recipe, its options and the folds' windows, in the log's own words.

Folds take their options from ScenarioConfigured alone, so that event is changed, wherever it stands.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from schemas.errors import RejectedError
from schemas.events import Event, ScenarioConfigured
from schemas.packed import JsonBytes
from schemas.recipe import recipe_digest
from schemas.settings.streams import StreamsSettings
from streams.scenario import LoadRecipe, configure

STREAMS = "streams."
"""Options that begin so are windows and limits of the folds; all others are the recipe's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is otherwise than in the log."""

    recipe: str | None = None
    """Dotted path of another recipe."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """By name; `streams.join_window_s` is one of the folds'."""

    def __bool__(self) -> bool:
        """Whether anything is."""
        return self.recipe is not None or bool(self.options)


NO_CHANGE = Change()


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Read `name=value` words; a value is JSON, or else text. Raises RejectedError."""
    options: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().replace("-", "_")
        if not (name and equals):
            raise RejectedError(f"--set: expected option=value, got {word!r}", reason="bad_options")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def changed(event: Event, change: Change, load_recipe: LoadRecipe) -> Event:
    """Give the event as it would have been; others than ScenarioConfigured stay. Raises RejectedError."""
    if not change or not isinstance(event, ScenarioConfigured):
        return event
    body: dict[str, Any] = json.loads(event.options)
    recipe = change.recipe or event.recipe
    known = load_recipe(recipe).options_type.model_fields
    kept = {name: value for name, value in body.get("recipe", {}).items() if name in known}
    options = kept | {name: each for name, each in change.options.items() if not name.startswith(STREAMS)}
    limits = body.get("streams", {}) | _limits(change)
    body |= {"recipe": options, "streams": limits}
    told = replace(
        event,
        recipe=recipe,
        recipe_digest=recipe_digest(recipe, options),
        options=JsonBytes(json.dumps(body, sort_keys=True).encode()),
    )
    return told if _can_be(told, event, load_recipe) else event


def _can_be(told: ScenarioConfigured, event: ScenarioConfigured, load_recipe: LoadRecipe) -> bool:
    """Refuse what a fold would refuse quietly, as one event of many; what it refused live is as it was."""
    try:
        configure(told, load_recipe)
    except RejectedError as error:
        try:
            configure(event, load_recipe)
        except RejectedError:
            return False
        raise RejectedError(
            f"--recipe, --set: expected options that {told.recipe} and `streams` take: {_detail(error)}",
            reason="bad_options",
        ) from error
    return True


def _detail(error: RejectedError) -> str:
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return str(error)
    return "; ".join(
        [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in cause.errors(include_url=False)]
    )


def _limits(change: Change) -> dict[str, Any]:
    found = {
        name.removeprefix(STREAMS): value
        for name, value in change.options.items()
        if name.startswith(STREAMS)
    }
    if unknown := sorted(found.keys() - StreamsSettings.model_fields.keys()):
        raise RejectedError(
            f"--set: expected a setting of `streams`, got {STREAMS}{unknown[0]}: see docs/configuration.md",
            reason="bad_options",
        )
    return found
