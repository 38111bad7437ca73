"""How much of a partition is at hand."""

from streams.outputs import EVENT_BYTES, Timed
from streams.recent import Recent
from tests.unit.streams.folding import START_US, a_report, receipt_at

REPORT_BYTES = 184


def kept(num_events: int, *, num_max: int) -> Recent:
    recent = Recent(num_max * (EVENT_BYTES + REPORT_BYTES))
    report = a_report("r", receipt_at(0))
    for offset in range(num_events):
        recent.keep(Timed(event=report, time_us=START_US, partition=0, offset=offset, key=b""), REPORT_BYTES)
    return recent


def test_small_events_count_as_the_memory_that_they_take() -> None:
    assert list(kept(10, num_max=10).events) == list(range(10))
    assert list(kept(13, num_max=10).events) == list(range(3, 13))


def test_an_event_that_is_kept_again_counts_once() -> None:
    recent = kept(10, num_max=10)
    first = recent.events[0]
    assert first is not None
    recent.keep(first, REPORT_BYTES)
    assert len(recent.events) == 10
