"""Pure: what the other services' gauges tell of the loop: how far streams are behind, and what waits.

Not all that they count: docs/metrics.md has that.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

LAGS = ("session", "batch", "relay")
"""The folds, in the order in which an event passes them."""
STREAMS_PREFIX = "streams-"

_LINE = re.compile(r'^reef_streams_(\w+?)(?:\{scenario="([^"]*)"\})? ([0-9.eE+-]+)$', re.MULTILINE)
_WAITING, _IN_FLIGHT = "waiting_experiences", "batches_in_flight"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGauges:
    """What all stream workers say together."""

    lag: Mapping[str, int]
    """Events that each fold is behind the log's end."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Experiences that no batch has taken, by scenario."""
    in_flight: Mapping[str, int] = field(default_factory=dict)
    """Batches that are sealed and not settled, by scenario."""


def stream_gauges(texts: Mapping[str, str | None]) -> StreamGauges | None:
    """Add up what the workers' metrics say; None when one of them did not answer, or there is none."""
    workers = [text for name, text in texts.items() if name.startswith(STREAMS_PREFIX)]
    if not workers or any(text is None for text in workers):
        return None
    lag = dict.fromkeys(LAGS, 0)
    waiting: dict[str, int] = {}
    in_flight: dict[str, int] = {}
    for name, scenario, value in (found for text in workers for found in _LINE.findall(text or "")):
        fold = name.removesuffix("_lag_events")
        if fold in lag and fold != name:
            lag[fold] += int(float(value))
        elif name == _WAITING:
            waiting[scenario] = waiting.get(scenario, 0) + int(float(value))
        elif name == _IN_FLIGHT:
            in_flight[scenario] = in_flight.get(scenario, 0) + int(float(value))
    return StreamGauges(lag=lag, waiting=waiting, in_flight=in_flight)
