"""Shell: what a stream worker counts; docs/metrics.md is its contract."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from schemas.events import OutcomeSettled
from streams.outputs import Counted, Emitted, Output, Refused

BATCH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ProcessorMetrics:
    """The counters of one kind of processor."""

    def __init__(self, name: str, registry: CollectorRegistry) -> None:
        """Register them under the processor's name."""
        prefix = f"reef_streams_{name}"
        self.events = Counter(f"{prefix}_events_total", f"events that {name} folded", registry=registry)
        self.lag = Gauge(f"{prefix}_lag_events", f"offsets that {name} is behind", registry=registry)
        self.pending = Gauge(f"{prefix}_pending_entries", f"what waits in {name}", registry=registry)
        self.watermark_age = Gauge(
            f"{prefix}_watermark_age_seconds", f"how far {name}'s slowest time is behind", registry=registry
        )
        self.batch_seconds = Histogram(
            f"{prefix}_batch_seconds",
            "from the first event of a batch to its commit",
            buckets=BATCH_SECONDS,
            registry=registry,
        )


class StreamMetrics:
    """The counters of one worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them."""
        self.of = {name: ProcessorMetrics(name, registry) for name in ("session", "batch", "relay")}
        self.waiting = Gauge(
            "reef_streams_waiting_experiences", "no batch has them", ["scenario"], registry=registry
        )
        self.in_flight = Gauge(
            "reef_streams_batches_in_flight", "sealed, not settled", ["scenario"], registry=registry
        )
        self._outcomes = Counter(
            "reef_streams_outcomes_total", "outcomes written", ["scenario", "reason"], registry=registry
        )
        self._refused = Counter(
            "reef_streams_refused_events_total", "records refused", ["reason"], registry=registry
        )
        self._noted = Counter(
            "reef_streams_noted_events_total", "events without effect", ["result"], registry=registry
        )
        self._undelivered = Counter(
            "reef_streams_undelivered_events_total", "records that Faust passed over", registry=registry
        )
        self._opened = Counter(
            "reef_streams_opened_partitions_total", "partitions opened", ["reason"], registry=registry
        )

    def took(self, processor: str, num_events: int, seconds: float) -> None:
        """Count a committed batch."""
        self.of[processor].events.inc(num_events)
        self.of[processor].batch_seconds.observe(seconds)

    def said(self, output: Output) -> None:
        """Count a committed output."""
        match output:
            case Emitted(event=OutcomeSettled() as outcome):
                reason = outcome.state if outcome.reason is None else outcome.reason
                self._outcomes.labels(outcome.scenario, reason.value).inc()
            case Refused():
                self._refused.labels(output.error.reason).inc()
            case Counted():
                self._noted.labels(output.what).inc()
            case _:
                pass

    def undelivered(self, num_events: int) -> None:
        """Count records that Faust passed over."""
        self._undelivered.inc(num_events)

    def opened(self, reason: str) -> None:
        """Count the opening of a partition."""
        self._opened.labels(reason).inc()


def show_metrics(registry: CollectorRegistry, port: int, host: str = "127.0.0.1") -> None:
    """Serve /metrics from a thread."""
    start_http_server(port, addr=host, registry=registry)
