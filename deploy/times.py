"""Shell: how a moment is written for people: UTC, to the second."""

from datetime import UTC, datetime


def moment(time_us: int) -> str:
    """Write microseconds since 1970 as a date and a time."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
