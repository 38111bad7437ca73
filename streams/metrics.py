"""Shell: what a stream worker counts: docs/metrics.md is its contract."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from schemas.events import OutcomeSettled
from streams.outputs import Counted, Emitted, Output, Refused

BATCH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class StreamMetrics:
    """The counters of one worker; `processor` is session, batch or relay."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them."""
        self._events = Counter("reef_streams_events_total", "events folded", ["processor"], registry=registry)
        self._outcomes = Counter(
            "reef_streams_outcomes_total",
            "calls whose story ended, by reason; `trained` when they were trained",
            ["scenario", "reason"],
            registry=registry,
        )
        self._refused = Counter(
            "reef_streams_refused_events_total", "records refused, by reason", ["reason"], registry=registry
        )
        self._counted = Counter(
            "reef_streams_noted_events_total",
            "events that changed nothing, by what they were",
            ["result"],
            registry=registry,
        )
        self._undelivered = Counter(
            "reef_streams_undelivered_events_total",
            "records that Faust did not deliver and that were read again from the log",
            registry=registry,
        )
        self._reopened = Counter(
            "reef_streams_reopened_partitions_total",
            "times a partition was opened, by why",
            ["reason"],
            registry=registry,
        )
        self.pending = Gauge(
            "reef_streams_pending_events", "what waits in the state", ["processor"], registry=registry
        )
        self.lag = Gauge(
            "reef_streams_lag_events",
            "offsets between the log's end and ours",
            ["processor"],
            registry=registry,
        )
        self.watermark_age = Gauge(
            "reef_streams_watermark_age_seconds",
            "how far the slowest partition's time is behind the clock",
            ["processor"],
            registry=registry,
        )
        self._batch_seconds = Histogram(
            "reef_streams_batch_seconds",
            "from the first event of a batch to its commit",
            ["processor"],
            buckets=BATCH_SECONDS,
            registry=registry,
        )

    def took(self, processor: str, num_events: int, seconds: float) -> None:
        """Count a committed batch."""
        self._events.labels(processor).inc(num_events)
        self._batch_seconds.labels(processor).observe(seconds)

    def said(self, output: Output) -> None:
        """Count a committed output."""
        match output:
            case Emitted(event=OutcomeSettled() as outcome):
                reason = outcome.state if outcome.reason is None else outcome.reason
                self._outcomes.labels(outcome.scenario, reason.value).inc()
            case Refused():
                self._refused.labels(output.error.reason).inc()
            case Counted():
                self._counted.labels(output.what).inc()
            case _:
                pass

    def undelivered(self, num_events: int) -> None:
        """Count records that Faust passed over."""
        self._undelivered.inc(num_events)

    def opened(self, reason: str) -> None:
        """Count the opening of a partition."""
        self._reopened.labels(reason).inc()


def show_metrics(registry: CollectorRegistry, port: int, host: str = "127.0.0.1") -> None:
    """Serve /metrics from a thread."""
    start_http_server(port, addr=host, registry=registry)
