"""Pure: how the engine is to sample, every parameter written out, so that nothing is filled in unseen.

What narrows the distribution is recorded; whether that makes a call untrainable is the recipe's matter.
"""

from collections.abc import Mapping
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
    values = {name: _number(body, name, getattr(defaults, name)) for name in _NUMBERS}
    temperature = values["temperature"]
    return Sampling(
        temperature=max(temperature, TEMPERATURE_MIN) if temperature > 0 else temperature,
        top_p=values["top_p"],
        top_k=max(0, int(values["top_k"])),
        min_p=values["min_p"],
        presence_penalty=values["presence_penalty"],
        frequency_penalty=values["frequency_penalty"],
        repetition_penalty=values["repetition_penalty"],
        seed=_seed(body.get("seed")),
        constraints=_constraints(body),
    )


def written_out(body: Mapping[str, Any], defaults: Sampling) -> dict[str, Any]:
    """Give the parameters to send: the client's as they came, the defaults for what it left out."""
    return {
        name: getattr(defaults, name) if (value := body.get(name)) is None else value for name in _NUMBERS
    }


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
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
    found = {_BY_KEY[key] for key in _BY_KEY.keys() & body.keys() if body[key]}
    wanted = body.get("response_format")
    if isinstance(wanted, Mapping) and wanted.get("type") != "text":
        found.add(SamplingConstraint.STRUCTURED_OUTPUT)
    if body.get("tool_choice") not in (None, "auto", "none"):
        found.add(SamplingConstraint.FORCED_TOOL)
    return tuple(sorted(found)) if found else ()
