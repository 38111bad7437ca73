"""Shell: tensors go to the disk and come back the same; a pointer says which of them count.

Not an export: these are fp32 tensors with optimizer state, for trainers only. The shards of all ranks and
their metadata are written first, the pointer last; whatever no pointer names is removed. Another number of
ranks reads the same shards.

Next: trainers/export.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import AdamW

from schemas.errors import RejectedError, UnavailableError
from schemas.ids import BatchId
from trainers.disk import empty_folder_aside, keep_only, publish_folder, unwritable, write_atomically
from trainers.ranks import Ranks
from trainers.state import State, decode_state
from trainers.step import Learner
from trainers.weights import trainable

POINTER = "pointer.json"
FOLDERS = "checkpoints"
TOO_LARGE = "too_large"
"""Names the batch that exhausted a rank's memory."""


class Checkpoints:
    """The tensors and the pointer of one scenario's trainer, in a folder that all ranks see."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        self._folder = folder
        self._ranks = ranks

    def read_pointer(self) -> State | None:
        """Give the pointer, the same on all ranks; None before the first. Raises RejectedError."""
        return self._ranks.on_first(lambda: read_pointer(self._folder))

    def save(self, learner: Learner, name: str) -> None:
        """Write all tensors to a new folder that no pointer names yet. All ranks call it."""
        path = self._folder / FOLDERS / name
        aside = self._ranks.on_first(lambda: empty_folder_aside(path))
        self._ranks.together(lambda: _write(tensors_of(learner, self._ranks.rank), aside))
        self._ranks.on_first(lambda: publish_folder(aside, path))

    def load(self, learner: Learner, name: str, *, num_steps: int) -> None:
        """Read all tensors back, in place. All ranks call it. Raises RejectedError."""
        path = self._folder / FOLDERS / name
        tensors = tensors_of(learner, self._ranks.rank)
        self._ranks.together(lambda: _read(tensors, path))
        own_rng = tensors.get(_rng_name(self._ranks.rank))
        if own_rng is not None:
            torch.set_rng_state(own_rng)
        learner.num_steps = num_steps

    def point(self, state: State) -> None:
        """Make this the truth, then remove the tensors that it does not name."""
        self._ranks.on_first(lambda: self._point(state))

    def refuse_if_it_was_too_large(self, batch_id: BatchId) -> None:
        """Refuse a batch that has ended this trainer before. Raises RejectedError `out_of_memory`."""
        marker = self._folder / TOO_LARGE
        if self._ranks.on_first(lambda: marker.exists() and marker.read_text() == batch_id):
            raise RejectedError(
                "expected the batch to fit into memory, got a rank that it ended: lower "
                "training.pack_tokens_max or switch training.has_activation_checkpointing on",
                reason="out_of_memory",
            )

    @contextmanager
    def noting_what_is_too_large(self, batch_id: BatchId) -> Iterator[None]:
        """Remember a batch that ends one rank among several: all start anew, and must not try it again."""
        try:
            yield
        except UnavailableError as error:
            if error.reason == "out_of_memory":
                write_atomically(self._folder / TOO_LARGE, batch_id.encode())
            raise

    def _point(self, state: State) -> None:
        write_pointer(self._folder, state)
        keep_only(self._folder / FOLDERS, {kept.folder for kept in state.kept})


def read_pointer(folder: Path) -> State | None:
    """Read the pointer of a trainer's folder; None before the first. Raises RejectedError."""
    try:
        data = (folder / POINTER).read_bytes()
    except FileNotFoundError:
        return None
    return decode_state(data)


def write_pointer(folder: Path, state: State) -> None:
    """Replace the pointer in one step."""
    write_atomically(folder / POINTER, state.model_dump_json(indent=1).encode())


def tensors_of(learner: Learner, rank: int) -> dict[str, Tensor]:
    """Everything that a step reads or changes, by name; writing into it changes the learner."""
    found = _with_moments("policy", learner.policy, learner.optimizer)
    if learner.critic is not None:
        found |= _with_moments("critic", learner.critic.network, learner.critic.optimizer)
    return found | {_rng_name(rank): torch.get_rng_state()}


def _with_moments(prefix: str, network: nn.Module, optimizer: AdamW) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, parameter in trainable(network).items():
        found[f"{prefix}.{name}"] = parameter.detach()
        for moment, tensor in _moments(parameter, optimizer).items():
            found[f"{prefix}.{name}.{moment}"] = tensor
    return found


def _moments(parameter: nn.Parameter, optimizer: AdamW) -> dict[str, Tensor]:
    """AdamW's state of a parameter, made as AdamW makes it if there was no step yet."""
    state: dict[str, Tensor] = optimizer.state[parameter]
    if not state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    return state


def _rng_name(rank: int) -> str:
    return f"rng.{rank}"


def _write(tensors: dict[str, Tensor], folder: Path) -> None:
    try:
        save(tensors, checkpoint_id=folder)
    except (OSError, CheckpointException) as error:
        raise unwritable(folder, error) from error


def _read(tensors: dict[str, Tensor], folder: Path) -> None:
    try:
        saved = FileSystemReader(folder).read_metadata().state_dict_metadata
        for name in [name for name in tensors if name.startswith("rng.") and name not in saved]:
            del tensors[name]  # fewer ranks saved than read now
        load(tensors, checkpoint_id=folder)
    except (OSError, CheckpointException) as error:
        raise RejectedError(
            f"expected a whole checkpoint in {folder}, got {str(error)[:300]}: restore it, or remove the "
            "trainer's pointer to begin again from the release",
            reason="bad_checkpoint",
        ) from error
