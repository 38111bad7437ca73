from typing import cast

from schemas.bus import Reader, Resolver
from schemas.records import Place
from streams.outputs import EVENT_BYTES, Timed
from streams.readback import RECENT_BYTES_MAX, ReadBack
from tests.unit.streams.folding import START_US, a_report, receipt_at

REPORT_BYTES = 184


def remembering(num_events: int) -> ReadBack:
    """Nothing is read here, so there is nothing to read with."""
    readback = ReadBack(Place("t", 0), cast(Reader, None), cast(Resolver, None))
    report = a_report("r", receipt_at(0))
    for offset in range(num_events):
        timed = Timed(event=report, time_us=START_US, partition=0, offset=offset, key=b"")
        readback.remember(timed, REPORT_BYTES)
    return readback


def test_small_events_count_as_the_memory_that_they_take() -> None:
    num_max = RECENT_BYTES_MAX // (EVENT_BYTES + REPORT_BYTES)
    assert len(remembering(num_max).at_hand) == num_max
    held = remembering(num_max + 3).at_hand
    assert list(held) == list(range(3, num_max + 3))
