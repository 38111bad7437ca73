"""Shell: what the request path counts, as docs/metrics.md lists it: never ids, never text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gateway.exchange import Exchange
from schemas.events import InferenceCompleted
from schemas.ids import ScenarioName

LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class CallMetrics:
    """Counters of requests, answers and captures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register everything once."""
        self._requests = Counter(
            "reef_gateway_requests_total",
            "Requests answered, by how they ended.",
            ("scenario", "api", "result"),
            registry=registry,
        )
        self._latency = Histogram(
            "reef_gateway_request_seconds",
            "From a request's headers to its last byte.",
            ("api",),
            buckets=LATENCY_S,
            registry=registry,
        )
        self._first_byte = Histogram(
            "reef_gateway_first_byte_seconds",
            "From a request's headers to the first byte of the answer's body.",
            ("api",),
            buckets=LATENCY_S,
            registry=registry,
        )
        self._tokens = Counter(
            "reef_gateway_tokens_total",
            "Tokens captured: result is prompt or completion.",
            ("scenario", "result"),
            registry=registry,
        )
        self._faults = Counter(
            "reef_gateway_capture_faults_total",
            "Calls whose capture is not exact, by reason.",
            ("scenario", "reason"),
            registry=registry,
        )
        self._lost = Counter(
            "reef_gateway_events_lost_total",
            "Calls that were answered but could not be recorded, by reason.",
            ("scenario", "reason"),
            registry=registry,
        )
        self._open = Gauge("reef_gateway_open_requests", "Requests being answered.", registry=registry)
        self._children: dict[tuple[str, str, str], Counter] = {}
        self._by_api: dict[str, tuple[Histogram, Histogram]] = {}
        self._by_scenario: dict[str, tuple[Counter, Counter]] = {}

    def opened(self) -> None:
        """Count a request in."""
        self._open.inc()

    def answered(self, exchange: Exchange, duration_s: float) -> None:
        """Count a request out."""
        self._open.dec()
        key = (exchange.scenario or "", exchange.api, exchange.result)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._requests.labels(*key)
        child.inc()
        times = self._by_api.get(exchange.api)
        if times is None:
            times = self._by_api[exchange.api] = (
                self._latency.labels(exchange.api),
                self._first_byte.labels(exchange.api),
            )
        times[0].observe(duration_s)
        if exchange.first_byte_s is not None:
            times[1].observe(exchange.first_byte_s)

    def captured(self, event: InferenceCompleted) -> None:
        """Count what a call's event holds."""
        counters = self._by_scenario.get(event.scenario)
        if counters is None:
            counters = self._by_scenario[event.scenario] = (
                self._tokens.labels(event.scenario, "prompt"),
                self._tokens.labels(event.scenario, "completion"),
            )
        counters[0].inc(event.usage.prompt)
        counters[1].inc(event.usage.completion)
        for fault in event.capture_faults:
            self._faults.labels(event.scenario, fault).inc()

    def lost(self, scenario: ScenarioName, reason: str) -> None:
        """Count an answer without a record."""
        self._lost.labels(scenario, reason).inc()
