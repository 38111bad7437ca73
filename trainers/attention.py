"""Pure: which token of a pack may look at which: causal, and never into another document (torch).

Not an attention kernel: on CPU a bool mask for scaled dot products, quadratic in the pack's length; on CUDA
a block mask for flex attention, which has no backward pass on CPU.
"""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

SDPA = "sdpa"
FLEX = "flex_attention"
BLOCK_TOKENS = 128
"""Side of the squares in which flex attention leaves out what nobody looks at."""


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
    """The same as a block mask, for documents that lie end to end; no memory quadratic in tokens is taken."""

    def may_look(batch: Tensor, head: Tensor, at: Tensor, to: Tensor) -> Tensor:
        return (documents[at] == documents[to]) & (positions[at] >= positions[to])

    num = documents.shape[0]
    first = documents[::BLOCK_TOKENS]
    last = torch.cat([documents[BLOCK_TOKENS - 1 : -1 : BLOCK_TOKENS], documents[-1:]])
    row = torch.arange(len(first), device=documents.device)
    is_before = row[None, :] < row[:, None]
    is_seen = (is_before & (last[None, :] == first[:, None])) | (row[None, :] == row[:, None])
    is_seen_whole = is_before & (first[None, :] == last[:, None])
    is_seen_whole[-1] &= num % BLOCK_TOKENS == 0  # a block that ends early is never whole
    return BlockMask.from_kv_blocks(
        *_counted(is_seen & ~is_seen_whole),
        *_counted(is_seen_whole),
        BLOCK_SIZE=BLOCK_TOKENS,
        mask_mod=may_look,
        seq_lengths=(num, num),
    )


def _counted(is_there: Tensor) -> tuple[Tensor, Tensor]:
    """`[row, column]` as how many there are in each row, and which columns: those that are there first."""
    marks = is_there[None, None].int()
    columns = marks.argsort(dim=-1, descending=True, stable=True)
    return marks.sum(-1, dtype=torch.int32), columns.to(torch.int32, memory_format=torch.contiguous_format)
