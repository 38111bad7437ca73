"""Pure: a recipe's options among reef's own keys, and those of single scenarios, judged by the recipe."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue, ValidationError

from schemas.errors import RejectedError
from schemas.recipe import RecipeOptions, load_recipe
from schemas.settings.judge import judge
from schemas.settings.layers import REEF_KEYS, Given, Layer, read_text
from schemas.settings.problems import Path, Problem, suggestion
from schemas.settings.reef import ReefSettings, ScenarioSettings
from schemas.settings.scenarios import options_given
from schemas.settings.section import accepts_boolean
from schemas.settings.wording import said_of


def judge_options(recipe: str, given: Mapping[Path, Given]) -> tuple[dict[str, JsonValue], list[Problem]]:
    """Read the options of reef's recipe; all of them, defaults too."""
    try:
        options_type = load_recipe(recipe).options_type
    except RejectedError as error:
        shared = {path: value for path, value in given.items() if path[-1] in RecipeOptions.model_fields}
        _, mistakes = _judged(RecipeOptions, shared)  # of the recipe's own options nothing is known
        return {}, [Problem(place="", path=("reef", "recipe"), message=str(error)), *mistakes]
    clashing = sorted(REEF_KEYS & set(options_type.model_fields))
    if clashing:
        message = (
            f"expected options with names of their own, got {', '.join(clashing)} in {recipe}: rename them"
        )
        return {}, [Problem(place="", path=("reef", "recipe"), message=message)]
    return _judged(options_type, given)


def _judged(
    options_type: type[RecipeOptions], given: Mapping[Path, Given]
) -> tuple[dict[str, JsonValue], list[Problem]]:
    fields = options_type.model_fields
    values = {
        path: read_text(value, fields[str(path[-1])].annotation if path[-1] in fields else str)
        for path, value in given.items()
    }
    boolean = [path for path, value in values.items() if _is_misplaced(options_type, path[-1], value)]
    problems = [Problem(place=given[path].place, path=path, message=_no_boolean()) for path in boolean]
    sound = {path: value for path, value in values.items() if path not in boolean}
    judged = judge(options_type, sound, dict(given), ("reef",))
    return judged.model.model_dump(mode="json"), [*problems, *judged.problems]


def judge_scenarios(reef: ReefSettings, layer: Layer) -> list[Problem]:
    """Find what is wrong with the options of single scenarios."""
    path = ("reef", "scenarios")
    given = layer.get(path)
    if given is None:
        return []
    return [
        Problem(place=given.place_of((index, *inner)), path=(*path, index, *inner), message=message)
        for index, written in _readable(given)
        for inner, message in _mistakes(reef, written)
    ]


def _readable(given: Given) -> Iterable[tuple[int, ScenarioSettings]]:
    """Yield the scenarios that can be read, whatever is wrong with the others."""
    values = read_text(given, ReefSettings.model_fields["scenarios"].annotation)
    for index, value in enumerate(values if isinstance(values, list) else []):
        try:
            yield index, ScenarioSettings.model_validate(value)
        except ValidationError:
            continue


def _mistakes(reef: ReefSettings, written: ScenarioSettings) -> Iterable[tuple[Path, str]]:
    try:
        options_type = load_recipe(written.recipe or reef.recipe).options_type
    except RejectedError as error:
        if written.recipe is not None:
            yield ("recipe",), str(error)
        return
    for name, value in written.options.items():
        if _is_misplaced(options_type, name, value):
            yield (name,), _no_boolean()
    try:
        options_type.model_validate(options_given(reef, written))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            yield from _mistake(options_type, written, detail)


def _mistake(
    options_type: type[RecipeOptions], written: ScenarioSettings, detail: Any
) -> Iterable[tuple[Path, str]]:
    loc = tuple(detail["loc"])
    name = str(loc[0]) if loc else ""
    if detail["type"] == "extra_forbidden" and len(loc) == 1 and name in written.options:
        known = {*options_type.model_fields, "name", "recipe", "target"}
        yield loc, f"expected a known key, got {name!r}: {suggestion(name, known)}"
    elif name in written.options or (not loc and any(key in detail["msg"] for key in written.options)):
        yield loc, said_of(detail, is_hidden=False)


def _is_misplaced(options_type: type[RecipeOptions], name: Any, value: Any) -> bool:
    field = options_type.model_fields.get(str(name))
    return isinstance(value, bool) and field is not None and not accepts_boolean(field.annotation)


def _no_boolean() -> str:
    return "expected no true or false here, got one: give a number or text"
