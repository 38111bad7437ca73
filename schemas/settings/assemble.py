"""Pure: layers become settings: the highest layer wins, every value is judged, every mistake is kept.

A value that is refused is taken out and the rest judged again, so that one mistake never hides another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.settings.judge import Judged, judge
from schemas.settings.layers import REEF_KEYS, Given, Layer, is_secret, known_field, read_text
from schemas.settings.options import judge_options, judge_scenarios
from schemas.settings.problems import Path, Problem
from schemas.settings.tree import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """What the layers amount to."""

    settings: Settings
    """Of all values that were accepted."""
    layer: Layer
    """What was given, by path, whatever layer it came from."""
    problems: tuple[Problem, ...]
    """Everything refused."""


def laid_over(layers: Sequence[Layer]) -> Layer:
    """Merge layers; later ones win."""
    return {path: given for layer in layers for path, given in layer.items()}


def assemble(layer: Layer) -> Assembled:
    """Judge every value."""
    options = {path: given for path, given in layer.items() if path[0] == "reef" and path[1] not in REEF_KEYS}
    typed, problems = _typed({path: given for path, given in layer.items() if path not in options})
    judged: Judged[Settings] = judge(Settings, typed, layer, ())
    problems += judged.problems
    settings = judged.model
    if ("reef", "recipe") in judged.accepted or ("reef", "recipe") not in layer:
        found, more = judge_options(settings.reef.recipe, options)
        problems += more
        settings = settings.model_copy(update={"reef": settings.reef.model_copy(update={"options": found})})
        problems += judge_scenarios(settings.reef, layer)
    return Assembled(settings=settings, layer=layer, problems=tuple(problems))


def _typed(layer: Mapping[Path, Given]) -> tuple[dict[Path, Any], list[Problem]]:
    typed: dict[Path, Any] = {}
    problems: list[Problem] = []
    for path, given in layer.items():
        annotation = _annotation(path)
        if is_secret(annotation) and given.variable is None and given.value is not None:
            message = "expected a secret as ${VARIABLE}, got it written out: keep it in the environment"
            problems.append(Problem(place=given.place, path=path, message=message))
        else:
            typed[path] = read_text(given, annotation)
    return typed, problems


def _annotation(path: Path) -> Any:
    found: Any = Settings
    for part in path:
        found = known_field(found, str(part))
    return found
