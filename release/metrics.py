"""Shell: what the release service shows of itself to Prometheus; docs/metrics.md lists the names."""

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from release.head import Release
from schemas.errors import ReefError
from schemas.events import CandidateEvaluated, Verdict
from schemas.ids import ScenarioName

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class ReleaseMetrics:
    """Counts verdicts, releases, commands and what went wrong."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._candidates = Counter(
            "reef_release_candidates",
            "Candidates decided, by verdict and first reason.",
            ["scenario", "result", "reason"],
            registry=registry,
        )
        self._releases = Counter(
            "reef_release_publications",
            "Releases published by this process, by operation.",
            ["scenario", "result"],
            registry=registry,
        )
        self._commands = Counter(
            "reef_release_commands",
            "Commands answered: done, or refused for a reason.",
            ["scenario", "result", "reason"],
            registry=registry,
        )
        self._failures = Counter(
            "reef_release_failures",
            "Times that work had to begin again, by reason.",
            ["scenario", "reason"],
            registry=registry,
        )
        self._head = Gauge(
            "reef_release_head_number", "release_seq of the chain's head.", ["scenario"], registry=registry
        )
        self._evaluation = Histogram(
            "reef_release_evaluation_seconds",
            "Time of one evaluation.",
            ["scenario"],
            buckets=SECONDS,
            registry=registry,
        )
        self._publication = Histogram(
            "reef_release_publication_seconds",
            "From taking a candidate to its release's last event, evaluation included.",
            ["scenario"],
            buckets=SECONDS,
            registry=registry,
        )

    def decided(self, event: CandidateEvaluated) -> None:
        """Count a verdict, and write its line."""
        reason = event.reasons[0].value if event.reasons else ""
        self._candidates.labels(event.scenario, event.verdict.value, reason).inc()
        write = _log.warning if event.verdict is Verdict.REJECTED else _log.info
        write(
            "candidate_evaluated",
            scenario=event.scenario,
            candidate_id=event.candidate_id,
            verdict=event.verdict.value,
            reasons=[one.value for one in event.reasons],
        )

    def published(self, release: Release) -> None:
        """Count a publication, and write its line."""
        head = release.head
        self._releases.labels(head.scenario, head.operation.value).inc()
        _log.info(
            "release_published",
            scenario=head.scenario,
            release_id=release.release_id,
            release_seq=release.seq,
            operation=head.operation.value,
            kind=head.kind.value,
            candidate_id=head.candidate_id,
            content_sha256=head.content_sha256,
        )

    def head(self, release: Release) -> None:
        """Show where the chain is."""
        self._head.labels(release.head.scenario).set(release.seq)

    def evaluated(self, scenario: ScenarioName, seconds: float) -> None:
        """Note how long an evaluation took."""
        self._evaluation.labels(scenario).observe(seconds)

    def took(self, scenario: ScenarioName, seconds: float) -> None:
        """Note how long a candidate took to its release."""
        self._publication.labels(scenario).observe(seconds)

    def answered(self, scenario: ScenarioName, error: ReefError | None) -> None:
        """Count a command."""
        result, reason = ("done", "") if error is None else ("refused", error.reason)
        self._commands.labels(scenario, result, reason).inc()

    def failed(self, scenario: ScenarioName, error: ReefError) -> None:
        """Count that something was in the way."""
        self._failures.labels(scenario, error.reason).inc()

    def serve(self, port: int) -> None:
        """Answer on loopback; a port that is taken costs the metrics, not the releases."""
        try:
            start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except OSError as error:
            _log.warning("metrics_unavailable", port=port, detail=str(error))
