"""Pure: what a receipt tells by itself, remembered for a while: a fold asks again and again."""

from functools import lru_cache

from schemas.ids import Receipt, Route, route_of, time_ms_of

_REMEMBERED = 65_536


@lru_cache(_REMEMBERED)
def _told(receipt: Receipt) -> tuple[int, Route]:
    return time_ms_of(receipt) * 1_000, route_of(receipt)


def made_us(receipt: Receipt) -> int:
    """Read when a call was begun; microseconds UTC, of whole milliseconds. Raises RejectedError."""
    return _told(receipt)[0]


def route_in(receipt: Receipt) -> Route:
    """Read a call's route. Raises RejectedError."""
    return _told(receipt)[1]
