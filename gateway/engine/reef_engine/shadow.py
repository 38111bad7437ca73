"""Shell: a second model beside the live one, filled while that one answers, and the exchange of weights.

The outline is made once, before the engine serves, on torch's meta device: making a model changes settings of
the whole process (default dtype, vLLM's current configuration), which must not happen beside a forward pass.
Not for quantised models, nor for experts on a CPU: their packed forms are more than parameters.
"""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from vllm.model_executor.model_loader.reload.meta import materialize_meta_tensor
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.utils.torch_utils import set_default_torch_dtype

PACKED = "cpu_linear"
"""Where vLLM keeps a matrix in the form that the CPU's kernels want: a function of the input."""
WRAPPED = ".base_layer"
"""What vLLM adds to the name of a module that adapters wrap."""

Pair = tuple[nn.Module, nn.Module]
"""A live module and its shadow."""


def outline(vllm_config: Any) -> nn.Module:
    """Make the model's shape without its numbers, with a register of layers of its own."""
    config = copy.copy(vllm_config)
    config.compilation_config = copy.copy(vllm_config.compilation_config)
    config.compilation_config.static_forward_context = {}
    config.compilation_config.static_all_moe_layers = []
    model_config = vllm_config.model_config
    with torch.device("meta"), set_default_torch_dtype(model_config.dtype):
        return initialize_model(config, model_config=model_config).eval()


def require_swappable(vllm_config: Any, device: torch.device) -> None:
    """Refuse models whose weights are more than their parameters. Raises ValueError."""
    if vllm_config.quant_config is not None:
        raise ValueError(
            "expected an unquantised model, got a quantised one: it cannot be swapped while it serves"
        )
    if device.type == "cpu" and vllm_config.compilation_config.static_all_moe_layers:
        raise ValueError(
            "expected a dense model on a CPU, got one with experts: it cannot be swapped while it serves"
        )


def num_bytes_of(model: nn.Module) -> int:
    """Count what a model's parameters take, or would."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def filled(
    outline_model: nn.Module,
    tensors: Iterable[tuple[str, torch.Tensor]],
    model_config: Any,
    device: torch.device,
) -> nn.Module:
    """Give the outline numbers, in the form that the engine computes with. Raises ValueError without all."""
    shadow = _copied(outline_model, device, {})
    with torch.no_grad():
        loaded = shadow.load_weights(iter(tensors))
        if loaded is not None:
            missing = sorted(name for name, _ in shadow.named_parameters() if name not in loaded)
            if missing:
                raise ValueError(
                    f"expected every tensor of the model, got none for {len(missing)}, such as {missing[0]}"
                )
        process_weights_after_loading(shadow, model_config, device)
    return shadow


def _copied(module: nn.Module, device: torch.device, done: dict[int, Any]) -> nn.Module:
    """Copy modules and parameters, and nothing that they point to; what was shared stays shared."""
    if id(module) in done:
        return done[id(module)]
    made = done[id(module)] = module.__class__.__new__(module.__class__)
    made.__dict__ = module.__dict__.copy()
    made._buffers = module._buffers.copy()
    made._parameters = {
        name: _real(parameter, device, done) for name, parameter in module._parameters.items()
    }
    made._modules = {
        name: child if child is None else _copied(child, device, done)
        for name, child in module._modules.items()
    }
    return made


def _real(parameter: Any, device: torch.device, done: dict[int, Any]) -> Any:
    if parameter is None or not parameter.is_meta:
        return parameter
    if id(parameter) not in done:
        with torch.device(device):
            done[id(parameter)] = materialize_meta_tensor(parameter)
    return done[id(parameter)]


def paired(live: nn.Module, shadow: nn.Module) -> tuple[Pair, ...]:
    """Put every module beside its shadow, and check them all. Raises ValueError on any difference."""
    by_name = {name.replace(WRAPPED, ""): module for name, module in live.named_modules()}
    pairs = []
    for name, made in shadow.named_modules():
        if not made._parameters and not hasattr(made, PACKED):
            continue
        module = by_name.get(name)
        if module is None or _forms(module) != _forms(made):
            raise ValueError(f"expected {name} as the live model has it, got {_forms(made)}")
        pairs.append((module, made))
    return tuple(pairs)


def _forms(module: nn.Module) -> tuple[bool, dict[str, tuple[torch.Size, torch.dtype]]]:
    parameters = {name: (p.shape, p.dtype) for name, p in module._parameters.items() if p is not None}
    return hasattr(module, PACKED), parameters


def exchange(pairs: Iterable[Pair], device: torch.device) -> None:
    """Give live modules their shadows' numbers: by pointer; copied on a GPU, whose graphs know addresses."""
    with torch.no_grad():
        for live, made in pairs:
            if hasattr(made, PACKED):
                live.cpu_linear = made.cpu_linear
            for name, parameter in made._parameters.items():
                if parameter is not None:
                    _give(live._parameters[name], parameter, device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _give(live: Any, parameter: Any, device: torch.device) -> None:
    if device.type == "cuda":
        live.data.copy_(parameter.data)
    else:
        live.data = parameter.data
