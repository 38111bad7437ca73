"""Shell: named weights go into networks and come out of them, whether or not they are spread over ranks.

Not a format: files are safetensors throughout (nothing is ever unpickled). Names are those of the model's own
folder, whatever wraps its layers here.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from schemas.errors import RejectedError
from trainers.gradients import whole

WRAPPED = "_checkpoint_wrapped_module."
"""What activation checkpointing puts into names."""


def named_weights(network: nn.Module, *, prefix: str = "") -> dict[str, nn.Parameter]:
    """Give all parameters by their plain names, tied ones under each of theirs."""
    named = network.named_parameters(prefix=prefix, remove_duplicate=False)
    return {name.replace(WRAPPED, ""): parameter for name, parameter in named}


def trainable(network: nn.Module) -> dict[str, nn.Parameter]:
    """Give the parameters that learn, each once, by name."""
    named = network.named_parameters()
    return {name.replace(WRAPPED, ""): parameter for name, parameter in named if parameter.requires_grad}


def weight_files(folder: Path) -> dict[str, tuple[str, ...]]:
    """List the names of the tensors in each safetensors file of a folder. Raises RejectedError."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with _opened(path) as file:
            found[path.name] = tuple(sorted(file.keys()))
    if not any(found.values()):
        raise RejectedError(
            f"expected safetensors files in {folder}, got none: name a folder with weights",
            reason="base_unavailable",
        )
    return found


def read_weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Give each tensor of a folder, one at a time. Raises RejectedError."""
    for name in weight_files(folder):
        with _opened(folder / name) as file:
            for key in sorted(file.keys()):
                yield key, file.get_tensor(key)


def _same(name: str) -> str:
    return name


def put_weights(
    targets: Mapping[str, nn.Parameter], folder: Path, *, name_of: Callable[[str], str] = _same
) -> None:
    """Copy a folder's weights into the parameters that `name_of` names, in fp32.

    Raises RejectedError, before the first copy, unless each tensor of the folder has its place.
    """
    refuse_strangers(targets, folder, name_of=name_of)
    with torch.no_grad():
        for name, tensor in read_weights(folder):
            _copy(targets[name_of(name)], tensor, name)


def refuse_strangers(
    targets: Mapping[str, nn.Parameter], folder: Path, *, name_of: Callable[[str], str] = _same
) -> None:
    """Refuse a folder with tensors that the network does not have. Raises RejectedError."""
    names = {name_of(name) for names in weight_files(folder).values() for name in names}
    strangers = names - targets.keys()
    if strangers:
        raise RejectedError(
            f"expected weights of the configured model in {folder}, got {len(strangers)} tensors unknown to "
            f"it, such as {min(strangers)}: is it another model's release?",
            reason="base_unavailable",
        )


def _copy(target: nn.Parameter, tensor: Tensor, name: str) -> None:
    if target.shape != tensor.shape:
        raise RejectedError(
            f"expected {name} of shape {tuple(target.shape)}, got {tuple(tensor.shape)}: "
            "is it another model's release?",
            reason="base_unavailable",
        )
    tensor = tensor.to(target.device, target.dtype)
    if isinstance(target, DTensor):
        tensor = distribute_tensor(tensor, target.device_mesh, target.placements, src_data_rank=None)
    target.copy_(tensor)


def _as_it_is(name: str, tensor: Tensor) -> Tensor:
    return tensor


def gathered(
    weights: Mapping[str, nn.Parameter],
    *,
    keeps: bool,
    convert: Callable[[str, Tensor], Tensor] = _as_it_is,
) -> dict[str, Tensor]:
    """Put weights together in fp32 on the CPU, in the order of their names.

    All ranks call it; who keeps them converts one at a time.
    """
    found = {}
    for name in sorted(weights):
        tensor = whole(weights[name].detach())
        if keeps:
            found[name] = convert(name, tensor.to("cpu", torch.float32).contiguous())
    return found


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise RejectedError(
            f"expected a safetensors file at {path}, got {error}: fetch the artifact again",
            reason="base_unavailable",
        ) from error
