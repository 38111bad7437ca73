"""Pure: where settings come from: file, environment and command line, each as a layer of single values.

Not the judgement of values: schemas/settings/assemble.py lays the layers over one another and validates.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr

from schemas.settings.expand import expand, has_reference, single_variable
from schemas.settings.problems import Path, Problem, nearest, suggestion
from schemas.settings.reef import ReefSettings
from schemas.settings.section import Section, plain_key
from schemas.settings.tree import Settings
from schemas.settings.yaml_text import Located, value_of_text

COMMAND_LINE = "command line"
REEF_KEYS = frozenset(ReefSettings.model_fields) - {"options"}
_ENVIRONMENT_NAME = re.compile(r"REEF_([A-Za-z0-9]+)__(\w+)")
_OPTION = re.compile(r"--([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value that somebody gave."""

    value: Any
    """As given; texts are not read yet."""
    place: str
    """File and line, variable, or command line."""
    is_text: bool = False
    """It came as text, so the field decides how it is read."""
    variable: str | None = None
    """The variable that holds it whole."""
    below: Mapping[Path, str] = field(default_factory=dict)
    """Places of the values inside it."""

    def place_of(self, inner: Path) -> str:
        """Find the place nearest to a value inside."""
        while inner and inner not in self.below:
            inner = inner[:-1]
        return self.below.get(inner, self.place)


Layer = dict[Path, Given]
"""Leaves by path; a recipe's options stand under `reef` beside reef's own keys."""


def file_layer(root: Located, name: str) -> tuple[Layer, list[Problem]]:
    """Take the leaves of a file."""
    layer: Layer = {}
    problems: list[Problem] = []
    for path, located in _leaves(root, Settings, (), name, problems):
        if not located.is_whole:
            continue
        below = {plain_path(inner): f"{name}:{line}" for inner, line in located.lines()}
        layer[path] = Given(
            value=located.plain,
            place=f"{name}:{located.line}",
            is_text=located.written is not None,
            variable=single_variable(located.written or ""),
            below=below,
        )
    return layer, problems


def environment_layer(environ: Mapping[str, str]) -> tuple[Layer, list[Problem]]:
    """Take `REEF_<SECTION>__<KEY>`; other variables are not ours."""
    layer: Layer = {}
    problems: list[Problem] = []
    for name in sorted(environ):
        match = _ENVIRONMENT_NAME.fullmatch(name)
        if match:
            parts = (match[1].lower(), *match[2].lower().split("__"))
            given = Given(value=environ[name], place=f"environment {name}", is_text=True, variable=name)
            _place(layer, problems, parts, given)
    return layer, problems


def command_line_layer(overrides: Sequence[str], environ: Mapping[str, str]) -> tuple[Layer, list[Problem]]:
    """Take `--section.key value` and `--section.key=value`; the last of several wins."""
    layer: Layer = {}
    problems: list[Problem] = []
    words = list(overrides)
    while words:
        word = words.pop(0)
        match = _OPTION.fullmatch(word)
        if match is None:
            problems.append(_no_option(word))
            words = words[1:] if word.startswith("--") and "=" not in word and _is_value(words) else words
            continue
        parts = tuple(match[1].split("."))
        text = match[2]
        if text is None and not _is_value(words):
            message = f"expected a value after {word}, got none: write {word} VALUE, or {word}=VALUE"
            problems.append(Problem(place=COMMAND_LINE, path=parts, message=message))
            continue
        text = words.pop(0) if text is None else text
        try:
            _place(layer, problems, parts, _from_command_line(text, environ))
        except ValueError as error:
            problems.append(Problem(place=COMMAND_LINE, path=parts, message=str(error)))
    return layer, problems


def _is_value(words: Sequence[str]) -> bool:
    """Whether the next word belongs to the option before it; what begins with `--` is an option itself."""
    return bool(words) and not words[0].startswith("--")


def _from_command_line(text: str, environ: Mapping[str, str]) -> Given:
    value = expand(text, environ) if has_reference(text) else text
    return Given(value=value, place=COMMAND_LINE, is_text=True, variable=single_variable(text))


def _no_option(word: str) -> Problem:
    every = {f"--{section}.{key}" for section, keys in keys_by_section().items() for key in keys}
    bare = plain_key(word.split("=")[0].lstrip("-"))
    same = [option for option in sorted(every) if option.endswith(f".{bare}")]
    front = f"--reef.{bare}"
    meant = (front if front in same else same[0]) if same else nearest(f"--{bare}", every)
    advice = f"did you mean {meant}?" if meant else "options are written --section.key value"
    return Problem(place=COMMAND_LINE, path=(), message=f"expected --section.key value, got {word}: {advice}")


def keys_by_section() -> dict[str, frozenset[str]]:
    """Name the keys of each section; a recipe's options come to `reef` when it is known."""
    found = {}
    for name, info in Settings.model_fields.items():
        section = as_section(info.annotation)
        assert section is not None, name
        found[name] = REEF_KEYS if name == "reef" else frozenset(section.model_fields)
    return found


def as_section(annotation: Any) -> type[Section] | None:
    """Give the type of a group of keys; None for a single key."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def _leaves(
    located: Located, model: type[BaseModel], path: Path, name: str, problems: list[Problem]
) -> Iterator[tuple[Path, Located]]:
    if located.value is None:
        return
    if not isinstance(located.value, dict):
        message = f"expected keys and values, got {located.plain!r:.80}: indent keys below it"
        problems.append(Problem(place=f"{name}:{located.line}", path=path, message=message))
        return
    seen: dict[str, int] = {}
    for key, item in located.value.items():
        plain = plain_key(key)
        place = f"{name}:{item.line}"
        if plain in seen:
            message = f"expected the key once, got it in line {seen[plain]} already (- and _ are equal)"
            problems.append(Problem(place=place, path=(*path, plain), message=message))
            continue
        seen[plain] = item.line
        known = known_field(model, plain)
        section = None if known is None else as_section(known)
        if known is None and path != ("reef",):
            problems.append(unknown_key(place, (*path, key)))
        elif section is not None:
            yield from _leaves(item, section, (*path, plain), name, problems)
        else:
            yield (*path, plain), item


def plain_path(path: Path) -> Path:
    """Spell all keys of a path plainly."""
    return tuple(plain_key(part) if isinstance(part, str) else part for part in path)


def known_field(model: type[BaseModel], name: str) -> Any:
    """Give the type of a key that may be set, or None."""
    info = model.model_fields.get(name)
    hidden = model is ReefSettings and name not in REEF_KEYS
    return None if info is None or hidden else info.annotation


def unknown_key(place: str, path: Path, options: frozenset[str] = frozenset()) -> Problem:
    """Refuse a key and name the nearest, in its group first, elsewhere if it stands there."""
    *group, key = path
    word = plain_key(str(key))
    model: Any = Settings
    for part in group:
        model = known_field(model, str(part))
    names = REEF_KEYS if model is ReefSettings else frozenset(model.model_fields)
    known = names | options
    if word in known:
        message = f"expected a value for {word}, got keys below it: give the value itself"
        return Problem(place=place, path=path, message=message)
    elsewhere = sorted(f"{section}.{word}" for section, keys in keys_by_section().items() if word in keys)
    advice = suggestion(word, known)
    if elsewhere and nearest(word, known) is None:
        advice = f"did you mean {elsewhere[0]}?"
    what = "section" if not group else "key"
    return Problem(place=place, path=path, message=f"expected a known {what}, got {key!r}: {advice}")


def _place(layer: Layer, problems: list[Problem], parts: tuple[str, ...], given: Given) -> None:
    path: Path = ()
    model: type[BaseModel] = Settings
    for part in parts[:-1]:
        section = as_section(known_field(model, plain_key(part)))
        if section is None:
            problems.append(unknown_key(given.place, (*path, part)))
            return
        path, model = (*path, plain_key(part)), section
    key = plain_key(parts[-1])
    annotation = known_field(model, key)
    if as_section(annotation) is not None:
        _place_group(layer, problems, (*path, key), given)
    elif annotation is not None or path == ("reef",):
        layer[*path, key] = given
    else:
        problems.append(unknown_key(given.place, (*path, parts[-1])))


def _place_group(layer: Layer, problems: list[Problem], path: Path, given: Given) -> None:
    values = value_of_text(str(given.value))
    if not isinstance(values, dict):
        message = f"expected keys and values such as {{key: value}}, got {given.value!r:.80}"
        problems.append(Problem(place=given.place, path=path, message=message))
        return
    for key, value in values.items():
        inner = Given(value=value, place=given.place)
        _place(layer, problems, (*(str(part) for part in path), str(key)), inner)


def read_text(given: Given, annotation: Any) -> Any:
    """Give the value as its field can take it: texts of lists and mappings are read as YAML."""
    if not given.is_text:
        return given.value
    text = str(given.value)
    if is_secret(annotation):
        return text
    if type(None) in get_args(annotation) and text in ("", "~", "null"):
        return None
    return value_of_text(text) if holds_many(annotation) else text


def is_secret(annotation: Any) -> bool:
    """Whether a field holds a secret."""
    return annotation is SecretStr or any(is_secret(arg) for arg in get_args(annotation))


def holds_many(annotation: Any) -> bool:
    """Whether a field holds a list or a mapping."""
    origin = get_origin(annotation)
    is_many = isinstance(origin, type) and issubclass(origin, (Mapping, Sequence))
    return is_many or any(holds_many(arg) for arg in get_args(annotation))
