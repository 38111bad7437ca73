"""Shell: what swaps are counted by, as docs/metrics.md lists it."""

from prometheus_client import CollectorRegistry

from gateway.tallies import Spread, Tallies, Tally

PAUSE_S = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
STAGE_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class SwapMetrics:
    """Counts swaps."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register everything once."""
        self._swaps = Tally(
            "reef_gateway_swaps_total",
            "swaps of a scenario's release, by how they ended",
            ("scenario", "result"),
        )
        self._stage = Spread(
            "reef_gateway_swap_stage_seconds", "staging, while the old release served", ("scenario",), STAGE_S
        )
        self._pause = Spread(
            "reef_gateway_swap_pause_seconds",
            "from sending the pause to the answer of the resume",
            ("scenario",),
            PAUSE_S,
        )
        self._gap = Spread(
            "reef_gateway_swap_stream_gap_seconds",
            "largest gap of any open stream until one second after a swap",
            ("scenario",),
            PAUSE_S,
        )
        self._restarts = Tally(
            "reef_gateway_engine_restarts_total", "engines that had to be restarted", ("engine",)
        )
        registry.register(Tallies((self._swaps, self._stage, self._pause, self._gap, self._restarts)))

    def swapped(self, scenario: str, *, stage_s: float, pause_s: float, gap_s: float) -> None:
        """Count a swap."""
        self._swaps.add((scenario, "swapped"))
        self._stage.add((scenario,), stage_s)
        self._pause.add((scenario,), pause_s)
        self._gap.add((scenario,), gap_s)

    def failed(self, scenario: str, reason: str) -> None:
        """Count a failure."""
        self._swaps.add((scenario, reason))

    def restarted(self, engine: str) -> None:
        """Count an engine that was ended to be started from a release's folder."""
        self._restarts.add((engine,))
