"""Shell: what the outbox tells Prometheus. Not a log: ids never become labels."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class OutboxMetrics:
    """Counters and gauges of one outbox."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rows = Gauge(
            "reef_gateway_outbox_events", "events that Kafka does not have yet", registry=registry
        )
        self._bytes = Gauge(
            "reef_gateway_outbox_bytes", "bytes that Kafka does not have yet", registry=registry
        )
        self._age = Gauge(
            "reef_gateway_outbox_age_seconds", "age of the oldest event that waits", registry=registry
        )
        self._full = Gauge(
            "reef_gateway_outbox_full", "1 while the outbox is at its limit", registry=registry
        )
        self._dead = Gauge(
            "reef_gateway_outbox_dead_events", "events that Kafka refused for good", registry=registry
        )
        self._shipped = Counter(
            "reef_gateway_outbox_shipped_events_total", "events that Kafka took", registry=registry
        )
        self._dropped = Counter(
            "reef_gateway_outbox_dropped_events_total", "events dropped at the limit", registry=registry
        )
        self._errors = Counter(
            "reef_gateway_outbox_send_errors_total",
            "times that a sender had to start again",
            ["reason"],
            registry=registry,
        )

    def watch(
        self,
        *,
        num_rows: Callable[[], float],
        size_bytes: Callable[[], float],
        age_s: Callable[[], float],
        is_full: Callable[[], float],
        num_dead: Callable[[], float],
    ) -> None:
        """Read these whenever Prometheus asks."""
        self._rows.set_function(num_rows)
        self._bytes.set_function(size_bytes)
        self._age.set_function(age_s)
        self._full.set_function(is_full)
        self._dead.set_function(num_dead)

    def shipped(self, num_events: int) -> None:
        """Kafka took events."""
        self._shipped.inc(num_events)

    def dropped(self, num_events: int) -> None:
        """Events went because the outbox was full."""
        self._dropped.inc(num_events)

    def send_failed(self, reason: str) -> None:
        """A sender closes its producer and starts again."""
        self._errors.labels(reason).inc()
