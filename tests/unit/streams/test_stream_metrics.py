"""What docs/metrics.md says of streams is what a worker registers."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from streams.metrics import StreamMetrics

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
