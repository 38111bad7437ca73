"""What streams' metrics say together is what their own registry shows."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from gateway.gauges import stream_gauges
from streams.metrics import StreamMetrics


def a_worker(lag: int, waiting: dict[str, int]) -> str:
    registry = CollectorRegistry()
    metrics = StreamMetrics(registry)
    metrics.of["session"].lag.set(lag)
    metrics.of["batch"].lag.set(2 * lag)
    for name, count in waiting.items():
        metrics.waiting.labels(name).set(count)
        metrics.in_flight.labels(name).set(1)
    return generate_latest(registry).decode()


def test_the_workers_gauges_are_added_up_by_scenario() -> None:
    texts = {"release": None, "streams-0": a_worker(3, {"a": 5, "b": 1}), "streams-1": a_worker(4, {"a": 2})}
    found = stream_gauges(texts)
    assert found is not None
    assert found.lag == {"session": 7, "batch": 14, "relay": 0}
    assert found.waiting == {"a": 7, "b": 1}
    assert found.in_flight == {"a": 2, "b": 1}


@pytest.mark.parametrize("texts", [{}, {"release": "x"}, {"streams-0": "", "streams-1": None}])
def test_a_sum_without_all_workers_is_no_sum(texts: dict[str, str | None]) -> None:
    assert stream_gauges(texts) is None
