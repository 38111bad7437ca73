"""Pure: the size of gradients, whether or not they are spread over ranks (torch)."""

from torch import Tensor, nn


def gradient_norm(network: nn.Module) -> Tensor:
    """The norm of all gradients together, over all ranks; a scalar."""
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    return whole(norm)


def clip(network: nn.Module, norm: Tensor, norm_max: float) -> None:
    """Scale gradients of this norm down to `norm_max`."""
    nn.utils.clip_grads_with_norm_(network.parameters(), norm_max, norm)


def whole(tensor: Tensor) -> Tensor:
    """Put a tensor that is spread over ranks together; all ranks call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
