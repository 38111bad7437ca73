"""Pure: which distribution an engine's logprobs are of: the one that it sampled from, or the model's raw one.

At a temperature of 0.3 the gaps between logprobs are 1/0.3 times those at 1, if the temperature counts.
"""

from typing import Any

from gateway.record import PROCESSED

RAW_LOGPROBS = "raw_logprobs"
UNKNOWN_LOGPROBS = "unknown"
_NUM_CANDIDATES = 5
_GAP_GROWTH_MIN = 1.5
_GAP_MIN = 1e-3


def probe_request(model: str, temperature: float) -> dict[str, Any]:
    """Ask for one token, with the logprobs of the likeliest few."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": "Name a colour."}],
        "max_tokens": 1,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": 0,
        "seed": 1,
        "logprobs": True,
        "top_logprobs": _NUM_CANDIDATES,
    }


def logprobs_mode_of(at_one: dict[str, Any], at_three_tenths: dict[str, Any]) -> str:
    """Compare the same token's logprobs at T = 1 and at T = 0.3."""
    wide, narrow = _gap(at_one), _gap(at_three_tenths)
    if wide is None or narrow is None or wide < _GAP_MIN:
        return UNKNOWN_LOGPROBS
    return PROCESSED if narrow / wide > _GAP_GROWTH_MIN else RAW_LOGPROBS


def _gap(answer: dict[str, Any]) -> float | None:
    """Give the distance between the likeliest and the least likely of the candidates."""
    try:
        tops = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        logprobs = sorted((float(top["logprob"]) for top in tops), reverse=True)[:_NUM_CANDIDATES]
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return logprobs[0] - logprobs[-1] if len(logprobs) > 1 else None
