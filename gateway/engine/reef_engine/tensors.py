"""Shell: tensors one after another, from a folder or from a sender: from here all transports look alike.

Whoever takes them copies each before asking for the next.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from reef_engine.groups import GlooGroup, Group, NcclGroup, Seat, join_store, read_forms, say_done
from reef_engine.memory import Room
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
        self._group: Group | None = None
        self._is_abandoned = threading.Event()

    def tensors(self) -> Iterator[Named]:
        """Receive every tensor that the sender announced. Raises RuntimeError, ValueError."""
        store = join_store(self._port, self._seat.deadline_s)
        forms = read_forms(store)
        self._group = self._joined(store)
        room = Room(self._device)
        for bucket in buckets_of(forms):
            if self._is_abandoned.is_set():
                raise RuntimeError("expected the transfer to go on, it was abandoned")
            data = room.of(bucket.num_bytes)
            self._group.broadcast(data)
            yield from tensors_in(data, bucket)
        self._group.drain()
        say_done(store, self._seat.rank)
        self._group = None

    def _joined(self, store: Any) -> Group:
        if self._transport == "nccl":
            return NcclGroup(store, self._seat, self._device)
        return GlooGroup(store, self._seat)

    def abandon(self) -> None:
        """Stop at the next bucket, and break off what hangs."""
        self._is_abandoned.set()
        if self._group is not None:
            self._group.throw_away()
