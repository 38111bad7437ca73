"""Pure: canonical JSON (RFC 8785): equal values have equal bytes, so that contents can be compared by digest.

Not a general encoder: whole numbers beyond 2^53 - 1, NaN and infinity have no canonical form and are refused.
"""

import json
import math
from hashlib import sha256
from typing import Any

import rfc8785

from schemas.errors import RejectedError
from schemas.ids import Sha256

INTEGER_ABS_MAX = 2**53 - 1


def canonical(value: Any) -> bytes:
    """Write a JSON value in its one form. Raises RejectedError."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise RejectedError(
            f"expected JSON of text, finite numbers and integers up to {INTEGER_ABS_MAX}, got other: {error}",
            reason="not_canonical",
        ) from error
    except RecursionError as error:
        raise RejectedError(
            "expected JSON of a few hundred levels at most, got more: flatten it", reason="not_canonical"
        ) from error


def read_canonical(data: bytes) -> Any:
    """Read canonical JSON so that writing it again gives the same bytes.

    A number such as 1e17 is written in digits; read as an integer it would be refused. Raises RejectedError.
    """
    try:
        return json.loads(data, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise RejectedError(f"expected JSON in UTF-8, got other: {error}", reason="not_canonical") from error


def _whole(digits: str) -> int | float:
    number = _finite(digits)
    return int(digits) if abs(number) <= INTEGER_ABS_MAX else number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {text:.40}")
    return number


def canonical_sha256(value: Any) -> Sha256:
    """Digest the canonical form. Raises RejectedError."""
    return Sha256(sha256(canonical(value)).hexdigest())
