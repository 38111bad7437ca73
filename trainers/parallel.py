"""Shell: a network is spread over the ranks with FSDP2. The order of the lines is the content.

Not tensor or pipeline parallelism: one axis, the ranks. Parameters, gradients and optimizer state are fp32
everywhere; bf16 is computed in, on CUDA only.
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from trainers.ranks import Ranks

Precision = Literal["fp32", "bf16"]


def spread(
    network: nn.Module, ranks: Ranks, *, precision: Precision, has_activation_checkpointing: bool
) -> None:
    """Move a network to this rank's device and leave it its share.

    1. Activations are recomputed inside a layer: first, so that a gathered layer serves its recomputation.
    2. Layers are sharded one by one: from then on only one layer at a time is whole.
    3. The rest (embeddings, last norm, heads) is sharded as one: last, because it takes what is left.
    """
    network.to(ranks.device)
    if has_activation_checkpointing:
        recompute_layers(network)
    if ranks.size == 1 and precision == "fp32":
        return  # whole already, and nothing to convert
    policy = _mixed(precision)
    for layer in layers_of(network):
        fully_shard(layer, mesh=ranks.mesh, mp_policy=policy)
    uncast = replace(policy, cast_forward_inputs=False)  # a pack's temperature 0.7 would be 0.699 in bf16
    fully_shard(network, mesh=ranks.mesh, mp_policy=uncast)


def is_spread(network: nn.Module) -> bool:
    """Whether FSDP holds a network: then a pass that breaks off leaves it unusable."""
    return isinstance(network, FSDPModule)


def settle(network: nn.Module) -> None:
    """Leave this rank its share again, after forward passes that no backward pass followed."""
    if isinstance(network, FSDPModule):
        network.reshard()


def layers_of(network: nn.Module) -> nn.ModuleList:
    """The repeated layers of a model: its largest list of modules (a layer may hold lists of its own)."""
    lists = [module for module in network.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=_num_weights, default=nn.ModuleList())


def _num_weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def recompute_layers(network: nn.Module) -> None:
    """Keep a layer's input only, and compute the rest again in the backward pass."""
    layers = layers_of(network)
    for index, layer in enumerate(layers):
        layers[index] = checkpoint_wrapper(layer)


def _mixed(precision: Precision) -> MixedPrecisionPolicy:
    if precision == "fp32":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
