"""Pure: the mathematics of REINFORCE: log-probabilities weighed by how much better than the batch's mean.

Axes: `sample`, `token`, `action`, `vocab` as in schemas/objective.py.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from schemas.objective import Actions, Critic, CriticKind, Sums
from schemas.recipe import RecipeOptions


class ReinforceObjective:
    """Mean over samples of −(R − R̄)·mean_t log π(a_t), without a critic and without correction."""

    def __init__(self, options: RecipeOptions, critic: Critic | None) -> None:
        """Keep nothing: the method has no options of its own."""

    @staticmethod
    def critic_kind(options: RecipeOptions) -> CriticKind:
        """Ask for none."""
        return "none"

    def trains_policy(self, batch_seq: int) -> bool:
        """Always."""
        return True

    def loss(self, batch: Actions, logits: Tensor) -> tuple[Tensor, Sums]:
        """Give this pack's part of the loss. See the protocol."""
        logprobs = batch.logprobs(logits)
        lengths = batch.action_mask.sum(1)
        means = logprobs.sum(1) / lengths.clamp(min=1)
        loss = -((batch.rewards - batch.all_rewards.mean()) * means).sum() / batch.num_samples
        is_there = lengths > 0
        differences = (logprobs.detach() - batch.behavior_logprobs)[batch.action_mask]
        return loss, {
            "num_samples": float(is_there.sum()),
            "num_actions": float(lengths.sum()),
            "reward": float(batch.rewards[is_there].sum()),
            "abs_diff": float(differences.abs().sum()),
        }

    def auxiliary_step(self, batch: Sequence[Actions]) -> Sums:
        """Do nothing: there is no critic."""
        return {}

    def metrics(self, sums: Sums) -> Mapping[str, float]:
        """Give what is worth watching."""
        return {
            "reward_mean": sums["reward"] / sums["num_samples"],
            "train_rollout_logprob_abs_diff": sums["abs_diff"] / sums["num_actions"],
        }
