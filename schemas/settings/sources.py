"""Pure: which hand gave each value: nobody, the environment, a line of a file, or the command line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from schemas.settings.layers import COMMAND_LINE, REEF_KEYS, Given, Layer
from schemas.settings.problems import Path, dotted
from schemas.settings.section import Section
from schemas.settings.tree import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a value came from."""

    kind: Literal["default", "environment", "file", "command line"]
    """The layer."""
    place: str
    """As people read it: `default`, `environment NAME`, `serve.yaml:3`, `command line`."""
    variable: str | None = None
    """The variable that holds the whole value."""


DEFAULT = Source(kind="default", place="default")


def settings_leaves(model: BaseModel, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield every key that may be set, with its value, in the order of the models."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if path == ("reef",) and name not in REEF_KEYS:
            yield from ((("reef", option), chosen) for option, chosen in value.items())
        elif isinstance(value, Section):
            yield from settings_leaves(value, (*path, name))
        else:
            yield (*path, name), value


def sources_of(settings: Settings, layer: Layer) -> Mapping[str, Source]:
    """Give the source of every key."""
    return {dotted(path): _source(layer.get(path)) for path, _ in settings_leaves(settings)}


def _source(given: Given | None) -> Source:
    if given is None:
        return DEFAULT
    if given.place == COMMAND_LINE:
        return Source(kind="command line", place=given.place, variable=given.variable)
    if given.place.startswith("environment "):
        return Source(kind="environment", place=given.place, variable=given.variable)
    return Source(kind="file", place=given.place, variable=given.variable)
