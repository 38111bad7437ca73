"""Pure: what an engine is told of a transfer, and the list of tensors by which both sides agree.

Not the transfer. The list is JSON, so that nothing that comes over a socket is ever executed.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Transport = Literal["nccl", "gloo", "folder"]
HEADER_BYTES_MAX = 128 * 1024 * 1024
"""Of the list of tensors in one file; the format itself allows 100 MB."""
DTYPES: Mapping[str, str] = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I64": "int64",
    "I32": "int32",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Names in safetensors' headers, and torch's."""
ITEM_BYTES: Mapping[str, int] = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
    "bool": 1,
}
"""Of one number, by torch's name of its kind."""
BUCKET_BYTES_MAX = 32 * 1024 * 1024
"""Sent at once, but for a tensor that is larger. One by one, each of hundreds of tensors would wait until a
busy machine gives both ends their turn, which took longer than the bytes."""
ALIGNED_BYTES = 64
"""Every tensor of a bucket begins at a multiple of this, so that it can be used where it lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorForm:
    """A tensor before its numbers have come."""

    name: str
    """As in the checkpoint."""
    dtype: str
    """Torch's name of it."""
    shape: tuple[int, ...]
    """Its size along each axis."""

    @property
    def num_bytes(self) -> int:
        """Its size in memory."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Tensors that travel together."""

    forms: tuple[TensorForm, ...]
    """In order."""
    offsets: tuple[int, ...]
    """Where each begins; bytes."""
    num_bytes: int
    """Of all, with the gaps between them."""


def buckets_of(forms: Sequence[TensorForm], bytes_max: int = BUCKET_BYTES_MAX) -> Iterator[Bucket]:
    """Deal tensors out to buckets, in their order; both sides do, and come to the same."""
    taken: list[TensorForm] = []
    offsets: list[int] = []
    end = 0
    for form in forms:
        begin = -(-end // ALIGNED_BYTES) * ALIGNED_BYTES
        if taken and begin + form.num_bytes > bytes_max:
            yield Bucket(forms=tuple(taken), offsets=tuple(offsets), num_bytes=end)
            taken, offsets, begin = [], [], 0
        taken.append(form)
        offsets.append(begin)
        end = begin + form.num_bytes
    if taken:
        yield Bucket(forms=tuple(taken), offsets=tuple(offsets), num_bytes=end)


def encode_forms(forms: Sequence[TensorForm]) -> str:
    """Write the list, in the order in which the tensors will come."""
    return json.dumps([[form.name, form.dtype, list(form.shape)] for form in forms])


def decode_forms(text: str) -> tuple[TensorForm, ...]:
    """Read the list. Raises ValueError."""
    rows = json.loads(text)
    return tuple(
        TensorForm(name=str(name), dtype=_known(str(dtype)), shape=tuple(int(size) for size in shape))
        for name, dtype, shape in rows
    )


def forms_in(header: bytes) -> tuple[TensorForm, ...]:
    """Read the list of tensors in a safetensors file's header, by name. Raises ValueError."""
    entries = json.loads(header)
    return tuple(
        TensorForm(
            name=name, dtype=_known(DTYPES.get(entry["dtype"], entry["dtype"])), shape=tuple(entry["shape"])
        )
        for name, entry in sorted(entries.items())
        if name != "__metadata__"
    )


def _known(dtype: str) -> str:
    if dtype not in DTYPES.values():
        raise ValueError(
            f"expected one of {', '.join(DTYPES.values())}, got {dtype!r}: quantised weights cannot be sent"
        )
    return dtype
