"""Pure: settings as a file that could be loaded again, each value with its source, secrets only by name."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from schemas.settings.expand import escape
from schemas.settings.problems import Path, dotted
from schemas.settings.section import Section
from schemas.settings.sources import DEFAULT, Source
from schemas.settings.tree import Settings

_UNPRINTABLE = re.compile("[^\x20-\x7e]")

_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")


def printed(settings: Settings, sources: Mapping[str, Source]) -> str:
    """Write all settings as YAML."""
    return "\n".join(_lines(settings, (), sources)) + "\n"


def _lines(model: BaseModel, path: Path, sources: Mapping[str, Source]) -> Iterator[str]:
    dumped = model.model_dump(mode="json")
    for name in type(model).model_fields:
        value = getattr(model, name)
        if path == ("reef",) and name == "options":
            for option, chosen in value.items():
                yield _line((*path, option), chosen, sources)
        elif isinstance(value, Section):
            yield f"{'  ' * len(path)}{name}:"
            yield from _lines(value, (*path, name), sources)
        else:
            yield _line((*path, name), value if isinstance(value, SecretStr) else dumped[name], sources)


def _line(path: Path, value: Any, sources: Mapping[str, Source]) -> str:
    source = sources.get(dotted(path), DEFAULT)
    comment = source.place
    if isinstance(value, SecretStr):
        assert source.variable is not None, f"{dotted(path)} came from nowhere"
        shown, comment = f"${{{source.variable}}}", f"{comment}, ******** masked"
    else:
        shown = flow(value)
    return f"{'  ' * (len(path) - 1)}{path[-1]}: {shown}  # {_BREAKING.sub('?', comment)}"


def flow(value: Any) -> str:
    """Write a value in one line of YAML that reads back as the same value."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(str(key))}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return _quoted(escape(value)) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return _UNPRINTABLE.sub(_escaped, json.dumps(text, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"
