"""Shell: tensors one after another, from a folder or from a sender: from here all transports look alike.

Whoever takes them copies each before asking for the next.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from reef_engine.groups import (
    Arrival,
    GlooGroup,
    Group,
    NcclGroup,
    Seat,
    join_store,
    read_forms,
    say_ended,
)
from reef_engine.memory import NUM_ROOMS, two_rooms
from reef_engine.transfer_info import Bucket, buckets_of

Named = tuple[str, torch.Tensor]


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Give the files with weights, in the order in which they are sent. Raises ValueError without any."""
    files = tuple(sorted(folder.glob("*.safetensors")))
    if not files:
        raise ValueError(f"expected *.safetensors in {folder}, got none: fetch the release again")
    return files


def folder_tensors(folder: Path) -> Iterator[Named]:
    """Read every tensor of a folder, in the order in which a sender sends them."""
    for path in weight_files(folder):
        with safe_open(path, "pt") as file:
            for name in sorted(file.keys()):
                yield name, file.get_tensor(name)


def tensors_in(data: torch.Tensor, bucket: Bucket) -> Iterator[Named]:
    """Give a bucket's tensors where they lie."""
    for form, begin in zip(bucket.forms, bucket.offsets, strict=True):
        raw = data[begin : begin + form.num_bytes]
        yield form.name, raw.view(getattr(torch, form.dtype)).reshape(form.shape)


class Transfer:
    """What comes from a sender, bucket by bucket."""

    def __init__(self, *, transport: str, port: int, seat: Seat, device: torch.device) -> None:
        """Meet nobody yet."""
        self._transport, self._port, self._seat, self._device = transport, port, seat, device
        self._store: Any = None
        self._group: Group | None = None
        self._is_abandoned = threading.Event()

    def tensors(self) -> Iterator[Named]:
        """Receive every tensor that the sender announced. Raises RuntimeError, ValueError."""
        self._store = join_store(self._port, self._seat.deadline_s)
        forms = read_forms(self._store)
        self._group = self._joined(self._store)
        under_way: deque[tuple[Bucket, torch.Tensor, Arrival]] = deque()
        for bucket, room in zip(buckets_of(forms), two_rooms(self._device), strict=False):
            if self._is_abandoned.is_set():
                raise RuntimeError("expected the transfer to go on, it was abandoned")
            data = room.of(bucket.num_bytes)
            under_way.append((bucket, data, self._group.broadcast(data)))
            if len(under_way) == NUM_ROOMS:
                yield from _arrived(*under_way.popleft())
        for coming in under_way:
            yield from _arrived(*coming)
        self._group.drain()
        self._group = None

    def say_ended(self, problem: str) -> None:
        """Tell the sender, if it is there, that nothing more is waited for, and why that went badly."""
        if self._store is not None:
            with suppress(RuntimeError):
                say_ended(self._store, self._seat.rank, problem)

    def _joined(self, store: Any) -> Group:
        if self._transport == "nccl":
            return NcclGroup(store, self._seat, self._device)
        return GlooGroup(store, self._seat)

    def abandon(self) -> None:
        """Stop at the next bucket, and break off what hangs."""
        self._is_abandoned.set()
        if self._group is not None:
            self._group.throw_away()


def _arrived(bucket: Bucket, data: torch.Tensor, arrival: Arrival) -> Iterator[Named]:
    arrival()
    return tensors_in(data, bucket)
