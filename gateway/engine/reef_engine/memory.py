"""Shell: memory for weights on their way: one room for all, and what is free goes back to the machine.

Fresh pages are dear: to touch a gigabyte of small ones for the first time takes a second or more.
"""

import ctypes
import mmap

import torch

from reef_engine.transfer_info import BUCKET_BYTES_MAX


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


def _fresh(num_bytes: int, device: torch.device) -> torch.Tensor:
    """On a CPU pages of their own, large ones, which go back with it instead of leaving holes in the heap."""
    if device.type != "cpu":
        return torch.empty(num_bytes, dtype=torch.uint8, device=device)
    pages = mmap.mmap(-1, num_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)


def give_back() -> None:
    """Return what is free on the heap, holes included; where the C library is not glibc, it keeps that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
