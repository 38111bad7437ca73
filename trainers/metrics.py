"""Shell: what a trainer shows of itself to Prometheus; docs/metrics.md lists the names.

Not the metrics of a batch, which stand in CandidateTrained: their last values are shown here again.
"""

from time import perf_counter

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from schemas.events import CandidateTrained
from schemas.ids import ScenarioName
from trainers.loop import Announcement

SPANS = {"saved": "checkpoint_seconds", "exported": "export_seconds"}
"""By the point that ends it: how long the part before it took."""

_log = structlog.get_logger()


class TrainerMetrics:
    """Told of every event and of every point of the loop's order."""

    def __init__(self, scenario: ScenarioName) -> None:
        self.registry = CollectorRegistry()
        self._scenario = scenario
        self._gauges: dict[str, Gauge] = {}
        self._batches = Counter(
            "reef_trainer_batches",
            "Batches that ended, by how.",
            ["scenario", "result", "reason"],
            registry=self.registry,
        )
        self._passed_s = perf_counter()

    def passed(self, point: str) -> None:
        """Note when a point was passed."""
        now_s = perf_counter()
        if point in SPANS:
            self._set(SPANS[point], now_s - self._passed_s)
        self._passed_s = now_s

    def observe(self, event: Announcement) -> None:
        """Count an event, show its metrics, and write its line."""
        if not isinstance(event, CandidateTrained):
            self._batches.labels(self._scenario, "failed", event.reason).inc()
            return
        self._batches.labels(self._scenario, "trained", "").inc()
        self._set("step", event.step)
        for name, value in event.metrics.items():
            self._set(name, value)
        _log.info(
            "batch_trained",
            scenario=event.scenario,
            batch_id=event.batch_id,
            candidate_id=event.candidate_id,
            step=event.step,
            optimizer=event.optimizer.value,
            is_publishable=event.is_publishable,
            **{name: round(value, 6) for name, value in event.metrics.items()},
        )

    def serve(self, port: int) -> None:
        """Answer on loopback; a port that is taken costs the metrics, not the training."""
        try:
            start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except OSError as error:
            _log.warning("metrics_unavailable", port=port, detail=str(error))

    def _set(self, name: str, value: float) -> None:
        plain = "reef_trainer_" + name.replace("/", "_")
        if plain not in self._gauges:
            self._gauges[plain] = Gauge(plain, f"Last value of {name}.", ["scenario"], registry=self.registry)
        self._gauges[plain].labels(self._scenario).set(value)
