"""Pure: values judged by their model until what is left is accepted, so that every mistake is found at once.

Not for models whose defaults could be refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from schemas.settings.layers import Layer, as_section, known_field, unknown_key
from schemas.settings.problems import Path, Problem, suggestion
from schemas.settings.tree import Settings
from schemas.settings.wording import said_of

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Generic[Model]):
    """A model and what had to be left out of it."""

    model: Model
    """Of the accepted values."""
    accepted: Mapping[Path, Any]
    """Values by path."""
    problems: tuple[Problem, ...]
    """Why the others were refused."""


def judge(model: type[Model], values: Mapping[Path, Any], layer: Layer, root: Path) -> Judged[Model]:
    """Validate values whose paths begin with `root`."""
    left = dict(values)
    problems: list[Problem] = []
    while True:
        try:
            valid = model.model_validate(_nested(left, root))
        except ValidationError as error:
            refused: set[Path] = set()
            for detail in _innermost(error.errors(include_url=False)):
                refused |= _refuse(model, (*root, *detail["loc"]), detail, left, layer, problems)
            left = {path: value for path, value in left.items() if path not in refused}
        else:
            return Judged(model=valid, accepted=left, problems=tuple(problems))


def _innermost(details: Sequence[Any]) -> list[Any]:
    """Leave out what was found only because something inside it was found before."""
    locs = [tuple(detail["loc"]) for detail in details]
    return [
        detail
        for detail, loc in zip(details, locs, strict=True)
        if not any(len(other) > len(loc) > 0 and other[: len(loc)] == loc for other in locs)
    ]


def _refuse(
    model: type[BaseModel],
    loc: Path,
    detail: Any,
    left: Mapping[Path, Any],
    layer: Layer,
    problems: list[Problem],
) -> set[Path]:
    """Record one finding and name the given values it speaks of."""
    at = next((path for path in left if loc[: len(path)] == path), None)
    if at is not None:
        problems.append(_problem(model, loc, at, layer, detail))
        return {at}
    below = [path for path in left if path[: len(loc)] == loc]
    assert below, f"defaults are never refused, yet {loc} was: {detail['msg']}"
    spoken_of = [path for path in below if str(path[-1]) in detail["msg"]] or below
    gone = [p.path for p in problems if p.path[: len(loc)] == loc and str(p.path[-1]) in detail["msg"]]
    if not gone:
        message = said_of(detail, is_hidden=any(map(_is_hidden, spoken_of)))
        problems.append(Problem(place=layer[spoken_of[0]].place, path=spoken_of[0], message=message))
    return set(spoken_of)


def _problem(model: type[BaseModel], loc: Path, path: Path, layer: Layer, detail: Any) -> Problem:
    given = layer[path]
    place = given.place_of(loc[len(path) :])
    if detail["type"] != "extra_forbidden":
        return Problem(place=place, path=loc, message=said_of(detail, is_hidden=_is_hidden(loc)))
    if loc == path:
        return unknown_key(place, loc, frozenset(model.model_fields))
    known = _names_at(loc[:-1])
    message = f"expected a known key, got {str(loc[-1])!r}: {suggestion(str(loc[-1]), known)}"
    return Problem(place=place, path=loc, message=message)


def _is_hidden(path: Path) -> bool:
    return str(path[-1]).endswith("_env") or path == ("reef", "token")


def _names_at(path: Path) -> tuple[str, ...]:
    found: Any = Settings
    for part in path:
        found = _section_in(found) if isinstance(part, int) else known_field(found, part)
    section = as_section(found)
    return tuple(section.model_fields) if section else ()


def _section_in(annotation: Any) -> Any:
    if as_section(annotation):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _section_in(arg))), None)


def _nested(values: Mapping[Path, Any], root: Path) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *groups, key = path[len(root) :]
        at = tree
        for group in groups:
            at = at.setdefault(str(group), {})
        at[str(key)] = value
    return tree
