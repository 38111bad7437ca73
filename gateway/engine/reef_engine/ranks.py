"""Pure: who is who in a transfer group: the sender is rank 0, the workers of all engines come after it.

Not the group itself. Data-parallel and tensor-parallel workers count alike: each holds a part of a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SENDER_RANK = 0
FIRST_WORKER_RANK = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """Where a worker stands within its engine."""

    rank: int
    """Within its data-parallel replica: tensor and pipeline parallel."""
    world_size: int
    """Workers of one replica."""
    data_parallel_index: int
    """Which replica."""


def global_rank(place: WorkerPlace) -> int:
    """Number a worker within its engine, over all replicas."""
    if not 0 <= place.rank < place.world_size or place.data_parallel_index < 0:
        raise ValueError(f"expected a rank below {place.world_size} in a replica from 0 on, got {place}")
    return place.data_parallel_index * place.world_size + place.rank


def group_rank(place: WorkerPlace, *, first_rank: int, group_size: int) -> int:
    """Number a worker within the transfer group; `first_rank` is its engine's first worker's."""
    rank = first_rank + global_rank(place)
    if not FIRST_WORKER_RANK <= rank < group_size:
        raise ValueError(
            f"expected a rank from {FIRST_WORKER_RANK} to {group_size - 1}, got {rank}: "
            "the engine has another number of workers than it said"
        )
    return rank


def require_distinct_devices(devices: Sequence[str]) -> None:
    """Refuse two ranks on one GPU, with which NCCL would hang; `devices` are UUIDs by rank."""
    holders: dict[str, int] = {}
    for rank, device in enumerate(devices):
        other = holders.setdefault(device, rank)
        if other != rank:
            raise ValueError(
                f"expected every rank on a GPU of its own, got ranks {other} and {rank} on {device}: "
                "give the sender another GPU, or set inference.transport to folder"
            )
