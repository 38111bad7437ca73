"""Shell: the processes that train together: who they are, and how they agree.

Whatever one rank alone can see (the log, a full disk, a broken file) is told to all before anyone goes on,
so that no rank waits for ever in a collective that another will not enter. Every collective has a deadline.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from schemas.errors import ReefError, RejectedError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among those that train together."""

    rank: int
    """From 0; rank 0 reads the log and writes files."""
    size: int
    """How many there are."""
    device: torch.device
    """Where this one computes."""
    mesh: DeviceMesh
    """All of them in one row, on that device."""

    @property
    def is_first(self) -> bool:
        """Whether this is the one that sees the outside."""
        return self.rank == 0

    def share(self, value: T | None) -> T:
        """Give rank 0's value to all. The value is pickled between our own processes."""
        if self.size == 1:
            return cast(T, value)
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return cast(T, box[0])

    def on_first(self, act: Callable[[], T]) -> T:
        """Let rank 0 do something and tell all how it went: the value, or the same error everywhere."""
        return self._agreed(act if self.is_first else None)

    def together(self, act: Callable[[], T]) -> T:
        """Let every rank do something of its own; if one fails, all fail with the lowest rank's error."""
        value, error = _tried(act)
        errors = [found for found in self._gathered(error) if found is not None]
        if errors:
            raise errors[0]
        return cast(T, value)

    def _agreed(self, act: Callable[[], T] | None) -> T:
        value, error = self.share(_tried(act) if act is not None else None)
        if error is not None:
            raise error
        return cast(T, value)

    def _gathered(self, value: T) -> Sequence[T]:
        if self.size == 1:
            return [value]
        found: list[T | None] = [None] * self.size
        dist.all_gather_object(found, value)
        return [cast(T, one) for one in found]

    def add_up(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Add each rank's parts in the order of ranks; names that end in `_max` take the maximum."""
        gathered = self._gathered(dict(sums))
        names = sorted({name for part in gathered for name in part})
        return {
            name: (max if name.endswith("_max") else sum)(part[name] for part in gathered if name in part)
            for name in names
        }

    def average_gradients(self, module: nn.Module) -> None:
        """Average over ranks what FSDP does not: gradients of parameters that every rank holds whole."""
        if self.size == 1:
            return
        for parameter in module.parameters():
            gradient = parameter.grad
            if gradient is not None and not isinstance(gradient, DTensor):
                dist.all_reduce(gradient)
                gradient /= self.size

    def refuse_non_finite(self, what: str, *numbers: Tensor) -> None:
        """Check numbers on all ranks. Raises RejectedError `non_finite` on all if any rank has another."""
        bad = torch.zeros(1, device=self.device)
        for number in numbers:
            bad += (~torch.isfinite(number)).sum()
        if self.size > 1:
            dist.all_reduce(bad)
        if bad.item():
            raise RejectedError(
                f"expected a finite {what}, got NaN or infinity: look at the batch's rewards and logprobs, "
                "or lower the learning rate",
                reason="non_finite",
            )

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()


def open_ranks(
    *, rank: int, size: int, rendezvous: str | None, device: torch.device, timeout_s: float
) -> Ranks:
    """Meet the other ranks at `tcp://host:port` or `file:///…`: over gloo, and NCCL on CUDA.

    Alone there is nobody to meet, and nowhere.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        init_method=rendezvous if size > 1 else None,
        store=HashStore() if size == 1 else None,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout_s),
    )
    mesh = init_device_mesh(device.type, (size,), mesh_dim_names=("ranks",))
    return Ranks(rank=rank, size=size, device=device, mesh=mesh)


def _tried(act: Callable[[], T]) -> tuple[T | None, ReefError | None]:
    try:
        return act(), None
    except ReefError as error:
        return None, error
