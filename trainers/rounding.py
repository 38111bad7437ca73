"""Pure: fp32 weights become bf16 ones without losing what was learned: rounded up or down by chance (torch).

One step of learning moves a weight by less than half the distance between two bf16 numbers. Rounded to the
nearest, weights that began as bf16 numbers would stay what they were, and a model that is served would not
learn what its trainer learns. Rounded by chance each is right on average (stochastic rounding: Zamirai et al.
2020, arXiv 2010.06192).
"""

from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

LOW_BITS = 16
"""What fp32 has beyond bf16."""
_LOW_MASK = (1 << LOW_BITS) - 1


def rounded_by_chance(tensor: Tensor, *, seed: str) -> Tensor:
    """Round fp32 on the CPU to bf16; equal seeds and values give equal bits.

    A value between two bf16 numbers becomes the upper one with the share of the way that it has gone; bf16
    numbers, infinities and NaN stay what they are.
    """
    bits = tensor.contiguous().view(torch.int32)
    chance = np.random.Generator(np.random.PCG64(int.from_bytes(sha256(seed.encode()).digest()[:8])))
    noise = np.frombuffer(chance.bytes(2 * tensor.numel()), dtype=np.uint16).astype(np.int32)
    moved = (bits + torch.from_numpy(noise).view(bits.shape)) & ~_LOW_MASK
    rounded = moved.view(torch.float32)
    return torch.where(torch.isfinite(tensor), rounded, tensor).to(torch.bfloat16)
