"""Pure: what a receipt tells by itself, remembered for a while: a fold asks again and again."""

from functools import lru_cache

from schemas.ids import Receipt, Route, time_and_route_of

_REMEMBERED = 65_536


@lru_cache(_REMEMBERED)
def _told(receipt: Receipt) -> tuple[int, Route]:
    time_ms, route = time_and_route_of(receipt)
    return time_ms * 1_000, route


def made_us(receipt: Receipt) -> int:
    """Read when a call was begun; microseconds UTC, of whole milliseconds. Raises RejectedError."""
    return _told(receipt)[0]


def route_in(receipt: Receipt) -> Route:
    """Read a call's route. Raises RejectedError."""
    return _told(receipt)[1]
