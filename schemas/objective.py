"""Pure: what an objective sees of a batch, and what it must offer: the mathematics of a recipe (torch).

Not a trainer: packs, ranks, optimizers and checkpoints are the trainer's. An objective is told about the
action tokens of one pack at a time, and everything it returns is a sum, so that no result depends on how a
batch was cut into packs or spread over ranks.

Axes: `sample` the samples of a pack; `token` a sample's action tokens in order, short rows filled up;
`action` all action tokens of the pack, sample after sample; `vocab` the model's vocabulary; `width` the
model's hidden size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

CriticKind = Literal["none", "head", "separate"]
"""`head`: a linear value head on the actor's detached hidden states; `separate`: a model of its own."""
Sums = Mapping[str, float]
"""Parts of metrics: added over packs and ranks, except names that end in `_max`, whose maximum is taken."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Actions:
    """The action tokens of one pack. Floats are fp32, on the device of the logits."""

    token_ids: Tensor
    """`[action]` int64: what was sampled."""
    action_mask: Tensor
    """`[sample, token]` bool: which places of the rows are filled."""
    behavior_logprobs: Tensor
    """`[sample, token]`: log-probabilities under the policy that sampled."""
    rewards: Tensor
    """`[sample]`."""
    policy_lags: Tensor
    """`[sample]`: releases between the sample's oldest token and the batch's base."""
    groups: tuple[str | None, ...]
    """By sample: what it is to be compared with."""
    all_rewards: Tensor
    """`[num_samples]`: of the whole batch, in its order."""
    all_groups: tuple[str | None, ...]
    """Of the whole batch, in its order."""
    hidden: Tensor
    """`[action, width]`: the actor's hidden states at the place before each action, detached."""
    num_samples: int
    """Of the whole batch, over all packs and ranks."""
    num_actions: int
    """Of the whole batch, over all packs and ranks."""
    place: int
    """Which of the rank's packs this is."""

    def rows(self, flat: Tensor) -> Tensor:
        """Lay `[action]` out as `[sample, token]`, zeros where there is none. Differentiable."""
        empty = flat.new_zeros(self.action_mask.shape)
        return empty.masked_scatter(self.action_mask, flat)

    def logprobs(self, logits: Tensor) -> Tensor:
        """Log-probabilities `[sample, token]` of what was sampled, from logits `[action, vocab]`."""
        return self.rows(-torch.nn.functional.cross_entropy(logits, self.token_ids, reduction="none"))


class Critic(Protocol):
    """A value network, built, spread over ranks and saved by the trainer."""

    def values(self, actions: Actions) -> Tensor:
        """Estimate `[sample, token]` values, each from the place before the action. Differentiable."""

    def update(self, packs: Sequence[Actions], loss_of: Callable[[Actions, Tensor], Tensor]) -> float:
        """Make one optimizer step on the sum of `loss_of(pack, values)`; give the gradient's norm.

        All ranks call it together. Raises RejectedError (`non_finite`) on all of them, before the step.
        """


class Objective(Protocol):
    """The mathematics of a recipe: logits in, loss and sums out."""

    def __init__(self, options: Any, critic: Critic | None) -> None:
        """Take the recipe's options, and the critic that `critic_kind` asked for."""

    @staticmethod
    def critic_kind(options: Any) -> CriticKind:
        """Say which critic the options need."""

    def trains_policy(self, batch_seq: int) -> bool:
        """Whether this batch changes the policy; otherwise only the critic warms up."""

    def loss(self, batch: Actions, logits: Tensor) -> tuple[Tensor, Sums]:
        """Give this pack's part of the loss and of the metrics.

        Args:
            batch: one pack.
            logits: `[action, vocab]` fp32, divided by the temperature that was sampled with.

        Returns:
            A scalar, already divided by the global number of samples, and parts of metrics.
        """

    def auxiliary_step(self, batch: Sequence[Actions]) -> Sums:
        """Do what else a step needs, such as critic updates, after all losses and before the actor's step."""

    def metrics(self, sums: Sums) -> Mapping[str, float]:
        """Make metrics of the parts, once added up over packs and ranks; undefined ones are left out."""
