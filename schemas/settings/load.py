"""Shell: a configuration is read: command line over file over environment over defaults, every mistake named.

Not the environment itself: it is an argument. schemas/settings/settings.py takes the process's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from schemas.errors import words_of
from schemas.settings.assemble import Assembled, assemble, laid_over
from schemas.settings.checks import findings
from schemas.settings.layers import Layer, command_line_layer, environment_layer, file_layer, plain_path
from schemas.settings.problems import ConfigurationError, Path, Problem
from schemas.settings.sources import Source, sources_of
from schemas.settings.tree import Settings
from schemas.settings.yaml_text import read_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration and where each of its values came from."""

    settings: Settings
    """Everything decided."""
    sources: Mapping[str, Source]
    """By `section.key`."""


def load_settings(
    file: FilePath | None, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Loaded:
    """Read a configuration. `overrides` are words such as `--reef.port`, `9000`.

    Raises:
        ConfigurationError: with every mistake found.
    """
    environ = {} if environ is None else environ
    named, problems = environment_layer(environ)
    written, more = _from_file(file, environ)
    said, yet_more = command_line_layer(overrides, environ)
    assembled = assemble(laid_over([named, written, said]))
    every = [*problems, *more, *yet_more, *assembled.problems]
    every += _across(assembled, environ, [problem.path for problem in every])
    if every:
        raise ConfigurationError(sorted(every, key=_reading_order))
    return Loaded(settings=assembled.settings, sources=sources_of(assembled.settings, assembled.layer))


def _from_file(file: FilePath | None, environ: Mapping[str, str]) -> tuple[Layer, list[Problem]]:
    if file is None:
        return {}, []
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"expected a readable YAML file in UTF-8, got {words_of(error)}: correct the path after -c"
        return {}, [Problem(place=str(file), path=(), message=message)]
    root, problems = read_yaml(text, str(file), environ)
    if root is None:
        return {}, problems
    layer, more = file_layer(root, str(file))
    return layer, [*problems, *more]


def _across(assembled: Assembled, environ: Mapping[str, str], refused: Sequence[Path]) -> list[Problem]:
    """Find what is wrong between keys, unless one of them was refused and nothing is known of it."""
    plain = {plain_path(path) for path in refused}
    return [
        Problem(place=_place(assembled, concerned), path=concerned[0], message=message)
        for concerned, message in findings(assembled.settings, environ)
        if not any(_leaf(path) == gone[: len(_leaf(path))] for path in concerned for gone in plain)
    ]


def _leaf(path: Path) -> Path:
    whole = [index for index, part in enumerate(path) if isinstance(part, int)]
    return path[: whole[0]] if whole else path


def _place(assembled: Assembled, concerned: Sequence[Path]) -> str:
    for path in concerned:
        leaf = _leaf(path)
        if leaf in assembled.layer:
            return assembled.layer[leaf].place_of(path[len(leaf) :])
    return ""


def _reading_order(problem: Problem) -> tuple[str, int]:
    name, _, line = problem.place.rpartition(":")
    return (name, int(line)) if name and line.isdecimal() else (problem.place, 0)
