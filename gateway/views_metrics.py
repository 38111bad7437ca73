"""Shell: what the views tell Prometheus: how old they are."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge


def show_views_lag(registry: CollectorRegistry, as_of_us: Callable[[], int]) -> None:
    """Show the seconds since the views had all of the log; infinite until they had.

    `as_of_us` gives up to when they have it, in microseconds UTC, 0 before they do.
    """
    lag = Gauge(
        "reef_gateway_views_lag_seconds",
        "how far behind the log /reef answers may be; infinite before it was read once",
        registry=registry,
    )

    def lag_s() -> float:
        until_us = as_of_us()
        return max(0.0, time.time_ns() / 1e9 - until_us / 1e6) if until_us else float("inf")

    lag.set_function(lag_s)
