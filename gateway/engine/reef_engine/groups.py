"""Shell: the group over which a sender and workers move tensors, on loopback, for one transfer only.

A group that broke or is late is thrown away whole: nothing of it is reused. Nothing is pickled.
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, Store, TCPStore

from reef_engine.ranks import FIRST_WORKER_RANK, SENDER_RANK, require_distinct_devices
from reef_engine.transfer_info import TensorForm, decode_forms, encode_forms

HOST = "127.0.0.1"
PROBLEM_CHARS_MAX = 500
_FORMS, _NCCL_ID = "forms", "nccl-id"

Arrival = Callable[[], object]
"""Waits for a tensor that is on its way. Raises RuntimeError when a rank is gone or late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One rank's place at the table."""

    rank: int
    """0 is the sender."""
    group_size: int
    """Sender and workers."""
    deadline_s: float
    """Of every wait."""


class Group(Protocol):
    """Ranks that receive what rank 0 sends."""

    def broadcast(self, tensor: torch.Tensor) -> Arrival:
        """Begin to send, or to fill, a contiguous tensor; the next may begin before it arrives."""

    def drain(self) -> None:
        """Wait until everything has arrived."""

    def throw_away(self) -> None:
        """End it, whatever is under way."""


def serve_store(group_size: int, deadline_s: float) -> TCPStore:
    """Open the sender's store on a free port of loopback."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((HOST, 0))
    listener.listen()
    port = listener.getsockname()[1]
    return TCPStore(
        HOST,
        port,
        group_size,
        is_master=True,
        timeout=timedelta(seconds=deadline_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        use_libuv=False,
    )


def join_store(port: int, deadline_s: float) -> TCPStore:
    """Come to the sender's store. Raises RuntimeError."""
    return TCPStore(HOST, port, None, is_master=False, timeout=timedelta(seconds=deadline_s))


def publish_forms(store: Store, forms: Sequence[TensorForm]) -> None:
    """Say which tensors will come."""
    store.set(_FORMS, encode_forms(forms))


def read_forms(store: Store) -> tuple[TensorForm, ...]:
    """Learn which tensors will come."""
    return decode_forms(store.get(_FORMS).decode())


def say_ended(store: Store, rank: int, problem: str) -> None:
    """Say that this rank's staging has ended, and why badly. Raises RuntimeError without its sender."""
    store.set(f"ended/{rank}", problem[:PROBLEM_CHARS_MAX])


def await_ended(store: Store, seat: Seat) -> tuple[str, ...]:
    """Wait until every staging has ended, and give their problems: what is closed earlier may be lost.

    Raises RuntimeError.
    """
    workers = [f"ended/{rank}" for rank in range(FIRST_WORKER_RANK, seat.group_size)]
    store.wait(workers, timedelta(seconds=seat.deadline_s))
    return tuple(problem for key in workers if (problem := store.get(key).decode()))


class GlooGroup:
    """Over sockets of loopback, on the CPU."""

    def __init__(self, store: Store, seat: Seat) -> None:
        """Meet all others. Raises RuntimeError at the deadline."""
        options = ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=seat.deadline_s)
        options._devices = [ProcessGroupGloo.create_device(hostname=HOST)]
        self._group = ProcessGroupGloo(PrefixStore("gloo", store), seat.rank, seat.group_size, options)
        self._store = store  # the group's sockets end with it

    def broadcast(self, tensor: torch.Tensor) -> Arrival:
        """Begin to move a tensor's bytes."""
        options = torch.distributed.BroadcastOptions()
        options.rootRank = SENDER_RANK
        return self._group.broadcast([tensor.reshape(-1).view(torch.uint8)], options).wait

    def drain(self) -> None:
        """Nothing is under way: each arrival was waited for."""

    def throw_away(self) -> None:
        """Close its sockets."""
        self._group.abort()


class NcclGroup:
    """Between GPUs, every rank on one of its own; NCCL's id travels through the store as plain bytes."""

    def __init__(self, store: Store, seat: Seat, device: torch.device) -> None:
        """Meet all others. Raises ValueError when two ranks share a GPU."""
        # Not above: importing vLLM takes seconds, and a sender on a CPU never needs it.
        from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator  # noqa: PLC0415
        from vllm.distributed.device_communicators.pynccl_wrapper import NCCLLibrary  # noqa: PLC0415

        require_distinct_devices(exchange_devices(store, seat, gpu_uuid(device)))
        if seat.rank == SENDER_RANK:
            store.set(_NCCL_ID, bytes(NCCLLibrary().ncclGetUniqueId().internal))
        torch.cuda.set_device(device)
        self._comm = PyNcclCommunicator.from_unique_id_bytes(
            store.get(_NCCL_ID), rank=seat.rank, world_size=seat.group_size, device=device
        )
        self._stream = torch.cuda.Stream(device)
        self._store = store

    def broadcast(self, tensor: torch.Tensor) -> Arrival:
        """Put a tensor's bytes on the way, on a stream beside the one that serves; which waits for them."""
        self._stream.wait_stream(torch.cuda.current_stream())
        self._comm.broadcast(tensor.reshape(-1).view(torch.uint8), SENDER_RANK, self._stream)
        arrived = self._stream.record_event()
        return lambda: torch.cuda.current_stream().wait_event(arrived)

    def drain(self) -> None:
        """Wait for the stream."""
        self._stream.synchronize()

    def throw_away(self) -> None:
        """Abort the communicator: what hangs in it returns."""
        self._comm.destroy()


def exchange_devices(store: Store, seat: Seat, device: str) -> tuple[str, ...]:
    """Tell every rank which GPU each of them is on."""
    store.set(f"device/{seat.rank}", device)
    return tuple(store.get(f"device/{rank}").decode() for rank in range(seat.group_size))


def gpu_uuid(device: torch.device) -> str:
    """Name a GPU in a way that every process agrees on."""
    return str(torch.cuda.get_device_properties(device).uuid)
