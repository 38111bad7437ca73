"""Pure: how long ago, as operators type it: `30m`, `12h`, `7d`."""

import re
from typing import Final

from schemas.errors import RejectedError

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,6})([smhd])")


def seconds_of(text: str) -> int:
    """Read a duration. Raises RejectedError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise RejectedError(
            f"expected a duration such as 30m, 12h or 7d, got {text[:40]!r}: correct it",
            reason="configuration",
        )
    return int(found[1]) * _UNITS_S[found[2]]
