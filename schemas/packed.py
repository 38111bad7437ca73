"""Pure: packed arrays: token ids, logprobs and masks as little-endian bytes, far cheaper than Avro arrays.

Not a tensor library: a packed array is plain `bytes` of a named kind, cut and hashed without unpacking.
The same names mark the large fields of an event, which the claim check may move into a blob.
"""

from typing import NewType

import numpy as np
from numpy.typing import NDArray

JsonBytes = NewType("JsonBytes", bytes)
"""UTF-8 JSON text."""
OriginalBytes = NewType("OriginalBytes", bytes)
"""Bytes as they came, whatever they are."""
TokenIds = NewType("TokenIds", bytes)
"""`<u4` token ids."""
Logprobs = NewType("Logprobs", bytes)
"""`<f4` natural log-probabilities, finite."""
Temperatures = NewType("Temperatures", bytes)
"""`<f4` sampling temperatures, finite."""
Mask = NewType("Mask", bytes)
"""`u1`, 0 or 1."""

BYTES_PER_TOKEN = 4


def num_tokens(packed: TokenIds | Logprobs | Temperatures) -> int:
    """Count the elements of a four-byte packed array."""
    return len(packed) // BYTES_PER_TOKEN


def tokens(packed: TokenIds) -> NDArray[np.uint32]:
    """View ids as an array of shape [token], without a copy."""
    return np.frombuffer(packed, dtype="<u4")


def floats(packed: Logprobs | Temperatures) -> NDArray[np.float32]:
    """View logprobs or temperatures as an array of shape [token], without a copy."""
    return np.frombuffer(packed, dtype="<f4")
