"""Pure: how the engine is to sample, every parameter written out, so that nothing is filled in unseen.

What narrows the distribution is recorded; whether that makes a call untrainable is the recipe's matter.
"""

from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Any

from gateway.errors import FieldError
from schemas.events import Sampling, SamplingConstraint

TEMPERATURE_MIN = 0.01
"""The engine raises a smaller one, if it is not 0, to this (WEIGHTS 4)."""
PLAIN_SAMPLING = Sampling(
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    repetition_penalty=1.0,
    seed=None,
    constraints=(),
)
"""The whole distribution of the model."""

_NUMBERS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_BY_KEY = {
    "logit_bias": SamplingConstraint.LOGIT_BIAS,
    "logits_processors": SamplingConstraint.LOGIT_BIAS,
    "structured_outputs": SamplingConstraint.STRUCTURED_OUTPUT,
    "guided_json": SamplingConstraint.STRUCTURED_OUTPUT,
    "guided_regex": SamplingConstraint.STRUCTURED_OUTPUT,
    "guided_choice": SamplingConstraint.STRUCTURED_OUTPUT,
    "guided_grammar": SamplingConstraint.STRUCTURED_OUTPUT,
    "thinking_token_budget": SamplingConstraint.STRUCTURED_OUTPUT,
    "min_tokens": SamplingConstraint.MIN_TOKENS,
    "bad_words": SamplingConstraint.BAD_WORDS,
    "allowed_token_ids": SamplingConstraint.ALLOWED_TOKEN_IDS,
}
"""Keys that narrow the distribution whenever they hold something."""


def sampling_of(body: Mapping[str, Any], defaults: Sampling) -> Sampling:
    """Read how a request samples. Raises FieldError when a parameter is no number."""
    given = {name: _number(name, body[name]) for name in _NUMBERS if body.get(name) is not None}
    constraints, seed = _constraints(body), _seed(body.get("seed"))
    if not given and not constraints and seed is None:
        return defaults
    if (temperature := given.get("temperature", 0.0)) > 0:
        given["temperature"] = max(temperature, TEMPERATURE_MIN)
    if "top_k" in given:
        given["top_k"] = max(0, int(given["top_k"]))
    values: dict[str, Any] = {**_as_mapping(defaults), **given}
    return Sampling(**values, seed=seed, constraints=constraints)


@cache
def _as_mapping(defaults: Sampling) -> Mapping[str, float]:
    return {name: getattr(defaults, name) for name in _NUMBERS}


def written_out(body: Mapping[str, Any], defaults: Sampling) -> dict[str, Any]:
    """Give the parameters to send: the client's as they came, the defaults for what it left out."""
    sent: dict[str, Any] = {**_as_mapping(defaults)}
    for name in _NUMBERS:
        if (value := body.get(name)) is not None:
            sent[name] = value
    return sent


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise FieldError(f"expected {name} to be a finite number, got another value: correct it", param=name)
    return float(value)


def _seed(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise FieldError("expected seed to be an integer of 64 bits, got another value", param="seed")
    return value


def _constraints(body: Mapping[str, Any]) -> tuple[SamplingConstraint, ...]:
    if not isinstance(body.get("structured_outputs"), Mapping | None):
        raise FieldError(
            "expected structured_outputs to be an object, got another value", param="structured_outputs"
        )
    found = {_BY_KEY[key] for key in _BY_KEY.keys() & body.keys() if body[key]}
    wanted = body.get("response_format")
    if isinstance(wanted, Mapping) and wanted.get("type") != "text":
        found.add(SamplingConstraint.STRUCTURED_OUTPUT)
    if body.get("tool_choice") not in (None, "auto", "none"):
        found.add(SamplingConstraint.FORCED_TOOL)
    tools = body.get("tools")
    if isinstance(tools, list) and any(_is_strict(tool) for tool in tools):
        found.add(SamplingConstraint.STRUCTURED_OUTPUT)
    return tuple(sorted(found)) if found else ()


def _is_strict(tool: Any) -> bool:
    """Whether the engine holds a tool's arguments to their schema, by ruling out tokens."""
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return isinstance(function, Mapping) and bool(function.get("strict"))
