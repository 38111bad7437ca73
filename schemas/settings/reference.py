"""Pure: the table of every key, made from the models, so that the documentation cannot drift from them.

`python -m schemas.settings.reference` prints it for docs/configuration.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path as FilePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from schemas.recipe import load_recipe
from schemas.settings.layers import as_section, holds_many
from schemas.settings.printed import flow
from schemas.settings.problems import Path, dotted
from schemas.settings.reef import SAO, ReefSettings, ScenarioSettings, TokenSettings
from schemas.settings.tree import Settings

HEAD = "| key | type | default | meaning |\n|---|---|---|---|"
_PLAIN = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    FilePath: "path",
    SecretStr: "secret",
    NoneType: "empty",
}


def reference() -> str:
    """Write one table a section."""
    tables = [
        f"### `{name}`: {info.description}\n\n{_table(info.annotation, (name,))}"
        for name, info in Settings.model_fields.items()
    ]
    tables.insert(
        1, f"### Options of SAO, inline in `reef`\n\n{_table(load_recipe(SAO).options_type, ('reef',))}"
    )
    tables.insert(2, f"### An entry of `reef.tokens`\n\n{_table(TokenSettings, ())}")
    tables.insert(3, f"### An entry of `reef.scenarios`\n\n{_table(ScenarioSettings, ())}")
    return "\n\n".join(tables) + "\n"


def _table(model: Any, path: Path) -> str:
    return "\n".join([HEAD, *_rows(model, path)])


def _rows(model: type[BaseModel], path: Path) -> Iterator[str]:
    for name, info in model.model_fields.items():
        if name == "options" and model in (ReefSettings, ScenarioSettings):
            continue
        section = as_section(info.annotation)
        if section is not None:
            yield from _rows(section, (*path, name))
        else:
            cells = (f"`{dotted((*path, name))}`", _type(info.annotation), _default(info), info.description)
            yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " ".join(f"`{choice}`" for choice in inner)
    if origin in (Union, UnionType):
        return " or ".join(_type(one) for one in inner)
    if inner and holds_many(annotation):
        return f"list of {_item(inner[0])}" if origin is tuple else "keys and values"
    return _type(inner[0]) if inner else _PLAIN.get(annotation, "text")


def _item(annotation: Any) -> str:
    return "mappings" if as_section(annotation) else _type(annotation)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None:
        return "empty"
    if isinstance(value, tuple):
        value = [one.model_dump(mode="json") if isinstance(one, BaseModel) else one for one in value]
    return f"`{flow(str(value) if isinstance(value, FilePath) else value)}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
