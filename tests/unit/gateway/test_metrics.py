"""What is documented is counted, and what is counted is documented."""

import re
import time
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import CallMetrics
from gateway.outbox_metrics import OutboxMetrics
from gateway.reporting import ReportMetrics
from gateway.swap_metrics import SwapMetrics
from gateway.tallies import Spread, Tallies, Tally
from gateway.views_metrics import show_views_lag

DOC = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(reef_gateway_\w+)` \| (\w+) \|", re.MULTILINE)


def test_the_table_of_metrics_is_what_the_gateway_registers() -> None:
    registry = CollectorRegistry()
    for metrics in (CallMetrics, OutboxMetrics, ReportMetrics, SwapMetrics):
        metrics(registry)
    show_views_lag(registry, lambda: 0)
    counted = set()
    for family in registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        counted.add((family.name + suffix, family.type))
    assert set(ROW.findall(DOC.read_text())) == counted


def test_the_views_lag_grows_from_when_they_last_had_the_log() -> None:
    registry = CollectorRegistry()
    as_of_us = 0
    show_views_lag(registry, lambda: as_of_us)
    assert registry.get_sample_value("reef_gateway_views_lag_seconds") == float("inf")
    as_of_us = time.time_ns() // 1000 - 5_000_000
    lag_s = registry.get_sample_value("reef_gateway_views_lag_seconds")
    assert lag_s is not None
    assert 5 <= lag_s <= 5 + (time.time_ns() // 1000 - 5_000_000 - as_of_us) / 1e6


def test_tallies_read_as_prometheus_own_do() -> None:
    registry = CollectorRegistry()
    tally = Tally("reef_x_total", "says", ("result",))
    spread = Spread("reef_y_seconds", "says", ("api",), (0.1, 1.0))
    registry.register(Tallies((tally, spread)))
    tally.add(("good",))
    tally.add(("good",), 2)
    for value in (0.05, 0.1, 0.5, 7):
        spread.add(("chat",), value)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }
    assert samples[("reef_x_total", "good")] == 3
    assert samples[("reef_y_seconds_bucket", "chat", "0.1")] == 2
    assert samples[("reef_y_seconds_bucket", "chat", "1.0")] == 3
    assert samples[("reef_y_seconds_bucket", "chat", "+Inf")] == 4
    assert samples[("reef_y_seconds_count", "chat")] == 4
    assert samples[("reef_y_seconds_sum", "chat")] == 7.65
