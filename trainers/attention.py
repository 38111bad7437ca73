"""Pure: which token of a pack may look at which: causal, and never into another document (torch).

Not an attention kernel: on CPU a bool mask for scaled dot products, quadratic in the pack's length; on CUDA
a block mask for flex attention, which has no backward pass on CPU.
"""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

SDPA = "sdpa"
FLEX = "flex_attention"


def implementation_for(device: torch.device) -> str:
    """Name the attention that transformers is to use."""
    return FLEX if device.type == "cuda" else SDPA


def mask_for(documents: Tensor, positions: Tensor) -> Tensor | BlockMask:
    """Make the mask of a pack from `[token]` documents and positions, on their device."""
    if implementation_for(documents.device) == FLEX:
        return document_block_mask(documents, positions)
    return document_mask(documents, positions)


def document_mask(documents: Tensor, positions: Tensor) -> Tensor:
    """`[1, 1, token, token]` bool: a row is the token that looks."""
    same = documents[:, None] == documents[None, :]
    return (same & (positions[:, None] >= positions[None, :]))[None, None]


def document_block_mask(documents: Tensor, positions: Tensor) -> BlockMask:
    """The same as a block mask."""

    def may_look(batch: Tensor, head: Tensor, at: Tensor, to: Tensor) -> Tensor:
        return (documents[at] == documents[to]) & (positions[at] >= positions[to])

    num = documents.shape[0]
    return create_block_mask(may_look, B=1, H=None, Q_LEN=num, KV_LEN=num, device=str(documents.device))
