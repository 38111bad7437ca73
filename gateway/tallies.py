"""Shell: counters and histograms for one event loop: plain numbers, handed to Prometheus when it asks.

prometheus_client's own take a lock for each of the nine numbers that a call changes; here nobody else writes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

Labels = tuple[str, ...]


class Tally:
    """A counter by labels."""

    def __init__(self, name: str, documentation: str, labels: Labels) -> None:
        """Name it as Prometheus will; names end in `_total`."""
        self._name, self._documentation, self._labels = name, documentation, labels
        self._counts: dict[Labels, float] = {}

    def add(self, labels: Labels, count: float = 1) -> None:
        """Count."""
        self._counts[labels] = self._counts.get(labels, 0) + count

    def family(self) -> Metric:
        """Give what was counted."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count)
        return family


class Level:
    """A gauge without labels."""

    def __init__(self, name: str, documentation: str) -> None:
        """Begin at 0."""
        self._name, self._documentation = name, documentation
        self.value = 0

    def family(self) -> Metric:
        """Give how high it stands."""
        return GaugeMetricFamily(self._name, self._documentation, value=self.value)


class Spread:
    """A histogram by labels."""

    def __init__(self, name: str, documentation: str, labels: Labels, bounds: Sequence[float]) -> None:
        """Take the upper bounds of its buckets, ascending."""
        self._name, self._documentation, self._labels = name, documentation, labels
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def add(self, labels: Labels, value: float) -> None:
        """Count a value into its bucket."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def family(self) -> Metric:
        """Give what was counted."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, counts in list(self._counts.items()):
            family.add_metric(labels, list(self._buckets(counts)), self._sums[labels])
        return family

    def _buckets(self, counts: Sequence[int]) -> Iterator[tuple[str, float]]:
        below = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            below += count
            yield bound, below


class Tallies(Collector):
    """Several of them, as Prometheus collects them."""

    def __init__(self, members: Sequence[Tally | Level | Spread]) -> None:
        """Take what is to be collected."""
        self._members = members

    def collect(self) -> Iterable[Metric]:
        """Give everything counted."""
        return [member.family() for member in self._members]
