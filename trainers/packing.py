"""Pure: samples are laid end to end in packs, without padding, and spread evenly over ranks (torch).

A pack is one forward pass. Attention stays inside a document by mask, and positions start anew in each, so a
packed sample sees exactly what it would see alone (within rounding). All ranks get the same number of packs,
because they meet in every layer; where samples run out, two tokens without actions stand in.

Axes: `token` all tokens of the pack; `action` those that the model generated; `sample` as in
schemas/objective.py, where `[sample, token]` counts a sample's actions only.

Next: trainers/step.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from schemas.events import ExperienceAssembled
from schemas.objective import Actions
from schemas.packed import floats, num_tokens, tokens
from trainers.batch import Batch

STAND_IN_TOKENS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pack:
    """One forward pass of one rank."""

    token_ids: Tensor
    """`[token]` int64."""
    positions: Tensor
    """`[token]` int64, from 0 in each document."""
    documents: Tensor
    """`[token]` int64: which sample of the pack a token belongs to."""
    action_places: Tensor
    """`[action]` int64: the place before each action, whose hidden state chose it."""
    temperatures: Tensor
    """`[action]` fp32: as sampled."""
    action_ids: Tensor
    """`[action]` int64: what was chosen."""
    action_mask: Tensor
    """`[sample, token]` bool."""
    behavior_logprobs: Tensor
    """`[sample, token]` fp32, 0 where there is none."""
    rewards: Tensor
    """`[sample]` fp32."""
    policy_lags: Tensor
    """`[sample]` fp32."""
    groups: tuple[str | None, ...]
    """By sample."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the forward pass."""
        return self.token_ids.shape[0]

    def to(self, device: torch.device) -> "Pack":
        """Move all tensors."""
        moved: dict[str, Any] = {  # one type for fields of several
            field.name: value.to(device)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)

    def actions(self, hidden: Tensor, *, place: int, batch: Batch) -> Actions:
        """Give an objective its view, with the hidden states `[action, width]`."""
        rewards = [experience.reward or 0.0 for experience in batch.experiences]
        return Actions(
            token_ids=self.action_ids,
            action_mask=self.action_mask,
            behavior_logprobs=self.behavior_logprobs,
            rewards=self.rewards,
            policy_lags=self.policy_lags,
            groups=self.groups,
            all_rewards=torch.tensor(rewards, device=hidden.device),
            all_groups=tuple(experience.group for experience in batch.experiences),
            hidden=hidden.detach(),
            num_samples=len(batch.experiences),
            num_actions=batch.num_actions,
            place=place,
        )


Plan = tuple[tuple[tuple[int, ...], ...], ...]
"""By rank, by pack: indices of the samples in it."""


def plan_packs(lengths: Sequence[int], *, num_ranks: int, pack_tokens_max: int) -> Plan:
    """Spread samples of these lengths: packs as few and as equal as fits, the same number for every rank.

    A sample longer than `pack_tokens_max` has a pack of its own.
    """
    per_rank = max(1, -(-sum(lengths) // (pack_tokens_max * num_ranks)))
    while (packs := _spread(lengths, per_rank * num_ranks, pack_tokens_max)) is None:
        per_rank += 1
    return tuple(packs[rank::num_ranks] for rank in range(num_ranks))


def _spread(
    lengths: Sequence[int], num_packs: int, pack_tokens_max: int
) -> tuple[tuple[int, ...], ...] | None:
    """Put each sample, longest first, where least lies; None when a pack of several became too long."""
    packs: list[list[int]] = [[] for _ in range(num_packs)]
    loads = [0] * num_packs
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        lightest = loads.index(min(loads))
        packs[lightest].append(index)
        loads[lightest] += lengths[index]
        if loads[lightest] > pack_tokens_max and len(packs[lightest]) > 1:
            return None
    return tuple(tuple(sorted(pack)) for pack in packs)


def packs_of(batch: Batch, *, rank: int, num_ranks: int, pack_tokens_max: int) -> tuple[Pack, ...]:
    """Give one rank its packs of a batch."""
    lengths = [num_tokens(experience.token_ids) for experience in batch.experiences]
    plan = plan_packs(lengths, num_ranks=num_ranks, pack_tokens_max=pack_tokens_max)
    base_seq = batch.sealed.base_release_seq
    return tuple(
        pack([batch.experiences[index] for index in indices], base_seq) if indices else stand_in()
        for indices in plan[rank]
    )


def pack(experiences: Sequence[ExperienceAssembled], base_release_seq: int) -> Pack:
    """Lay samples end to end."""
    lengths = [num_tokens(experience.token_ids) for experience in experiences]
    masks = [np.frombuffer(experience.loss_mask, dtype=np.bool_) for experience in experiences]
    mask = torch.from_numpy(np.concatenate(masks))
    token_ids = _joined([tokens(experience.token_ids).astype(np.int64) for experience in experiences])
    temperatures = _joined([floats(experience.temperatures) for experience in experiences])
    behavior = [
        torch.from_numpy(floats(experience.logprobs)[own])
        for experience, own in zip(experiences, masks, strict=True)
    ]
    num_actions = torch.tensor([int(own.sum()) for own in masks])
    lags = [base_release_seq - experience.release_seq_first for experience in experiences]
    return Pack(
        token_ids=token_ids,
        positions=torch.cat([torch.arange(length) for length in lengths]),
        documents=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
        action_places=mask.nonzero()[:, 0] - 1,
        temperatures=temperatures[mask],
        action_ids=token_ids[mask],
        action_mask=torch.arange(int(num_actions.max())) < num_actions[:, None],
        behavior_logprobs=pad_sequence(behavior, batch_first=True),
        rewards=torch.tensor([experience.reward or 0.0 for experience in experiences]),
        policy_lags=torch.tensor(lags, dtype=torch.float32),
        groups=tuple(experience.group for experience in experiences),
    )


def stand_in() -> Pack:
    """Two tokens without actions: a rank that has no samples still meets the others in every layer."""
    return Pack(
        token_ids=torch.zeros(STAND_IN_TOKENS, dtype=torch.int64),
        positions=torch.arange(STAND_IN_TOKENS),
        documents=torch.zeros(STAND_IN_TOKENS, dtype=torch.int64),
        action_places=torch.zeros(0, dtype=torch.int64),
        temperatures=torch.zeros(0),
        action_ids=torch.zeros(0, dtype=torch.int64),
        action_mask=torch.zeros((1, 1), dtype=torch.bool),
        behavior_logprobs=torch.zeros((1, 1)),
        rewards=torch.zeros(1),
        policy_lags=torch.zeros(1),
        groups=(None,),
    )


def _joined(arrays: Sequence[NDArray[np.generic]]) -> Tensor:
    return torch.from_numpy(np.concatenate(arrays))
