"""Pure: canonical JSON (RFC 8785): equal values have equal bytes, so that contents can be compared by digest.

Not a general encoder: whole numbers beyond 2^53 - 1, NaN and infinity have no canonical form and are refused.
"""

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


def canonical_sha256(value: Any) -> Sha256:
    """Digest the canonical form. Raises RejectedError."""
    return Sha256(sha256(canonical(value)).hexdigest())
