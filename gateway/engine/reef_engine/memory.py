"""Shell: memory for weights on their way: two rooms for all, and what no staging needs goes back.

Fresh pages are dear: to touch a gigabyte of them for the first time takes up to a second, which is most of
what a staging takes. So what one staging leaves is kept for the next, and no more than that.
"""

import ctypes
import mmap
from collections.abc import Iterator
from itertools import cycle

import torch

from reef_engine.transfer_info import BUCKET_BYTES_MAX

NUM_ROOMS = 2
"""While one bucket is on its way, the other is filled or emptied."""
_FREE = 8
"""Where mallinfo2 says how much is free (malloc.h: fordblks)."""


class Room:
    """Bytes that buckets pass through, one after another."""

    def __init__(self, device: torch.device) -> None:
        """Take nothing yet."""
        self._device = device
        self._bytes: torch.Tensor | None = None

    def of(self, num_bytes: int) -> torch.Tensor:
        """Give room for a bucket; what was there before is gone."""
        if self._bytes is None or len(self._bytes) < num_bytes:
            self._bytes = _fresh(max(num_bytes, BUCKET_BYTES_MAX), self._device)
        return self._bytes[:num_bytes]


def two_rooms(device: torch.device) -> Iterator[Room]:
    """Give two rooms in turns, for ever."""
    return cycle([Room(device) for _ in range(NUM_ROOMS)])


def _fresh(num_bytes: int, device: torch.device) -> torch.Tensor:
    """On a CPU pages of their own, large ones, which go back with it instead of leaving holes in the heap."""
    if device.type != "cpu":
        return torch.empty(num_bytes, dtype=torch.uint8, device=device)
    pages = mmap.mmap(-1, num_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)


class _HeapSizes(ctypes.Structure):
    """What mallinfo2 of glibc gives: ten sizes in bytes, over all threads."""

    _fields_ = (("sizes", ctypes.c_size_t * 10),)


def give_back(kept_bytes_max: int) -> None:
    """Return what is free on the heap, holes included, if it is more than this; only glibc does."""
    library = ctypes.CDLL(None)
    look, trim = getattr(library, "mallinfo2", None), getattr(library, "malloc_trim", None)
    if look is None or trim is None:
        return
    look.restype = _HeapSizes
    if look().sizes[_FREE] > kept_bytes_max:
        trim(0)
