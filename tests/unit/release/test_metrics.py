"""What is documented is counted, and what is counted is documented."""

import re
from pathlib import Path

from release.metrics import ReleaseMetrics

DOC = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(reef_release_\w+)` \| (\w+) \|", re.MULTILINE)


def test_the_table_of_metrics_is_what_the_release_service_registers() -> None:
    counted = set()
    for family in ReleaseMetrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        counted.add((family.name + suffix, family.type))
    assert set(ROW.findall(DOC.read_text())) == counted
