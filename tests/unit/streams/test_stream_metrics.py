"""What docs/metrics.md says of streams is what a worker registers."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from streams.gauges import show_queues
from streams.metrics import StreamMetrics
from tests.unit.streams.folding import SCENARIO
from tests.unit.streams.test_batch import an_experience, begun

DOC = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(reef_streams_\w+)` \| (\w+) \|", re.MULTILINE)


def test_the_table_of_metrics_is_what_a_worker_registers() -> None:
    registry = CollectorRegistry()
    StreamMetrics(registry)
    counted = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type)
        for family in registry.collect()
    }
    assert set(ROW.findall(DOC.read_text())) == counted


def test_what_waits_and_what_is_in_flight_is_shown_by_scenario() -> None:
    registry = CollectorRegistry()
    metrics = StreamMetrics(registry)
    metrics.waiting.labels("gone").set(9)
    folding = begun(batch_size=2)
    for number in range(5):
        folding.take(an_experience(number))
    show_queues([folding.state, begun(batch_size=2).state], metrics)
    labels = {"scenario": str(SCENARIO)}
    assert registry.get_sample_value("reef_streams_waiting_experiences", labels) == 3
    assert registry.get_sample_value("reef_streams_batches_in_flight", labels) == 1
    assert registry.get_sample_value("reef_streams_waiting_experiences", {"scenario": "gone"}) is None
