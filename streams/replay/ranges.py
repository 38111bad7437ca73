"""Shell: which part of the log a replay reads, as people say it: whole, or between two points.

It decides as a pure module would, and asks no clock; only texts of times are read by the library.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from schemas.errors import RejectedError
from schemas.records import Bounds, Place

_OFFSET = re.compile(r"\d{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place in the log: an offset in every partition, or a time."""

    offset: int | None = None
    """In every partition of both topics."""
    time_us: int | None = None
    """Of records; microseconds UTC."""
    said: str
    """As it was given."""


def read_point(text: str, option: str) -> Point:
    """Read an offset, or a time in UTC such as 2026-10-01T12:00:00Z. Raises RejectedError."""
    text = text.strip()
    if _OFFSET.fullmatch(text):
        return Point(offset=int(text), said=text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RejectedError(
            f"{option}: expected an offset, or a time in UTC such as 2026-10-01T12:00:00Z, got {text!r}",
            reason="bad_range",
        ) from error
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return Point(time_us=since // timedelta(microseconds=1), said=text)


def checked(wanted: Mapping[Place, Bounds], held: Mapping[Place, Bounds]) -> Mapping[Place, Bounds]:
    """Give the ranges if the log holds them. Raises RejectedError `before_log_start` or `bad_range`."""
    if wanted.keys() != held.keys():
        raise RejectedError(
            f"expected the {len(held)} partitions that the log has, got {len(wanted)}: this is another "
            "cluster's manifest",
            reason="bad_range",
        )
    for place, bounds in sorted(wanted.items()):
        has, where = held[place], f"{place.topic}/{place.partition}"
        if bounds.start < has.start:
            raise before_log_start(f"{where} at offset {bounds.start}", f"at offset {has.start}")
        if bounds.end > has.end:
            raise RejectedError(
                f"expected {where} to reach offset {bounds.end}, but its log ends at {has.end}: is this "
                "another cluster, or was the topic made anew?",
                reason="bad_range",
            )
        if bounds.start > bounds.end:
            raise RejectedError(
                f"expected a range that begins before it ends, got {bounds.start} to {bounds.end} of {where}",
                reason="bad_range",
            )
    return wanted


def before_log_start(wanted: str, held: str) -> RejectedError:
    """Make the refusal of a range whose beginning is no longer, or never was, in the log."""
    return RejectedError(
        f"expected a range that the log holds, but it would begin with {wanted}, and the log begins {held}: "
        "begin later, or leave --from out for all that there is",
        reason="before_log_start",
    )
