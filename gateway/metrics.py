"""Shell: what the request path counts, as docs/metrics.md lists it: never ids, never text."""

from prometheus_client import CollectorRegistry

from gateway.exchange import Exchange
from gateway.tallies import Level, Spread, Tallies, Tally
from schemas.events import InferenceCompleted
from schemas.ids import ScenarioName

LATENCY_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)


class CallMetrics:
    """Counts requests, answers and captures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register everything once."""
        self._requests = Tally(
            "reef_gateway_requests_total",
            "requests answered, by how they ended",
            ("scenario", "api", "result"),
        )
        self._latency = Spread(
            "reef_gateway_request_seconds",
            "from a request's headers to its last byte",
            ("api",),
            LATENCY_S,
        )
        self._first_byte = Spread(
            "reef_gateway_first_byte_seconds",
            "from a request's headers to the first byte of the answer's body",
            ("api",),
            LATENCY_S,
        )
        self._tokens = Tally(
            "reef_gateway_tokens_total", "tokens captured, of prompts and completions", ("scenario", "result")
        )
        self._faults = Tally(
            "reef_gateway_capture_faults_total",
            "calls whose capture is not exact",
            ("scenario", "reason"),
        )
        self._lost = Tally(
            "reef_gateway_events_lost_total",
            "calls that were answered but could not be recorded",
            ("scenario", "reason"),
        )
        self._open = Level("reef_gateway_open_requests", "requests being answered")
        members = (self._requests, self._latency, self._first_byte, self._tokens, self._faults, self._lost)
        registry.register(Tallies((*members, self._open)))

    def opened(self) -> None:
        """Count a request in."""
        self._open.value += 1

    def answered(self, exchange: Exchange, duration_s: float) -> None:
        """Count a request out."""
        self._open.value -= 1
        self._requests.add((exchange.scenario or "", exchange.api, exchange.result))
        self._latency.add((exchange.api,), duration_s)
        if exchange.first_byte_s is not None:
            self._first_byte.add((exchange.api,), exchange.first_byte_s)

    def captured(self, event: InferenceCompleted) -> None:
        """Count what a call's event holds."""
        self._tokens.add((event.scenario, "prompt"), event.usage.prompt)
        self._tokens.add((event.scenario, "completion"), event.usage.completion)
        for fault in event.capture_faults:
            self._faults.add((event.scenario, fault))

    def lost(self, scenario: ScenarioName, reason: str) -> None:
        """Count an answer without a record."""
        self._lost.add((scenario, reason))
