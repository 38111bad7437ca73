"""Pure: what all sections of the configuration share: frozen, and exact about keys and values.

Not the sections themselves: each stands in the file of its name.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

EMBEDDED = "embedded"
"""The word for a dependency that runs beside us instead of at an address."""

_HTTP_URL = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[^\s?#]*)?")


class Section(BaseModel):
    """A group of keys. Unknown keys are refused, `-` and `_` are equal."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _with_plain_keys(cls, value: Any) -> Any:
        return plain_keys(value) if isinstance(value, Mapping) else value

    @field_validator("*", mode="before")
    @classmethod
    def _without_booleans_for_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and not accepts_boolean(field.annotation):
            raise ValueError(f"expected no true or false here, got {str(value).lower()}")
        return value


def plain_key(key: str) -> str:
    """Give the one spelling of a key."""
    return key.strip().replace("-", "_")


def plain_keys(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Spell all keys of one mapping plainly. Raises ValueError when two become one."""
    plain: dict[str, Any] = {}
    for key, value in values.items():
        name = plain_key(str(key))
        if name in plain:
            raise ValueError(f"expected each key once, got {name!r} twice (- and _ are equal)")
        plain[name] = value
    return plain


def accepts_boolean(annotation: Any) -> bool:
    """Whether a field of this type may hold true or false."""
    return (
        annotation is bool or annotation is Any or any(accepts_boolean(arg) for arg in get_args(annotation))
    )


def _http_url(text: str) -> str:
    if not _HTTP_URL.fullmatch(text):
        raise ValueError("expected a URL such as http://127.0.0.1:8000")
    return text.rstrip("/")


def _embedded_or_url(text: str) -> str:
    return text if text == EMBEDDED else _http_url(text)


def _environment_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError("expected the name of an environment variable, such as REEF_TOKEN, not its value")
    return text


def _dotted_path(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ValueError("expected a path such as package.module:Name")
    return text


def _evaluator(text: str) -> str:
    return text if text in BUILT_IN_EVALUATORS else _dotted_path(text)


BUILT_IN_EVALUATORS = ("metric_bounds", "prompt_set")
"""Evaluators that the release service brings."""
Evaluator = Annotated[str, AfterValidator(_evaluator)]
"""A built-in evaluator's name, or `package.module:Name`."""
Url = Annotated[str, AfterValidator(_http_url)]
"""An http or https address without a final slash."""
EmbeddedOrUrl = Annotated[str, AfterValidator(_embedded_or_url)]
"""`embedded`, or an http or https address."""
EnvironmentName = Annotated[str, AfterValidator(_environment_name)]
"""Names the variable that holds a secret; never the secret."""
DottedPath = Annotated[str, AfterValidator(_dotted_path)]
"""`package.module:Name`."""
Port = Annotated[int, Field(ge=1, le=65_535)]
"""A TCP port."""
FilePath = Annotated[Path, Field()]
"""A path; relative ones start from the working directory."""
