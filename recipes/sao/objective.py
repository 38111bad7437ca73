"""Pure: the mathematics of SAO (arXiv 2607.07508): a ratio mask instead of clipping, a critic, no KL.

Not a trainer: it sees packs and gives sums. `sao_loss` and `gae` are the formulas on plain tensors, and
`SAOObjective` applies them to one batch: V is the critic's before this batch's updates throughout.

Axes: `sample`, `token`, `action`, `vocab` as in schemas/objective.py.
"""

from collections.abc import Mapping, Sequence
from math import isfinite

import torch
from torch import Tensor

from recipes.sao.recipe import SAOOptions
from schemas.objective import Actions, Critic, CriticKind, Sums

VARIANCE_MIN = 1e-9
"""Below it targets count as equal: what is left is rounding."""


def sao_loss(
    logprobs: Tensor,
    behavior_logprobs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    *,
    eps_low: float,
    eps_high: float,
) -> Tensor:
    """Mean over samples of −Σ_t sg[f(r_t)]·A_t·log π(a_t), where r_t = exp(log π − log μ).

    f keeps a ratio strictly between 1 − eps_low and 1 + eps_high and drops every other one: dropped, not
    clipped. All inputs are `[sample, token]`; what stands at masked places has no influence.
    """
    mask = action_mask.bool()
    ratios = torch.exp(logprobs.detach() - behavior_logprobs)
    kept = mask & _is_effective(ratios, eps_low=eps_low, eps_high=eps_high)
    weights = torch.where(kept, ratios * advantages, 0).detach()
    return -(weights * torch.where(mask, logprobs, 0)).sum() / logprobs.shape[0]


def gae(
    rewards: Tensor, values: Tensor, action_mask: Tensor, *, lam: float | Tensor, gamma: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantages over action tokens only: observation tokens between them take no time.

    A_t = δ_t + γλ·A_next with δ_t = r_t + γ·V_next − V_t, where *next* is the next action token of the
    sample, and both are 0 after the last one.

    Args:
        rewards: `[sample, token]`, read at action tokens only.
        values: `[sample, token]`, each estimated before its token was chosen; no gradient flows through.
        action_mask: `[sample, token]`.
        lam: λ, one for all or one per sample (`[sample]`).
        gamma: the discount.

    Returns:
        `(advantages, returns)`, both `[sample, token]`: advantages are 0 where masked, and
        `returns = advantages + values`.
    """
    mask, rewards, values = action_mask.bool(), rewards.detach(), values.detach()
    decay = gamma * torch.as_tensor(lam, dtype=values.dtype, device=values.device)
    advantages = torch.zeros_like(values)
    next_advantage = next_value = values.new_zeros(values.shape[0])
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = delta + decay * next_advantage
        advantages[:, t] = torch.where(mask[:, t], advantage, 0)
        next_advantage = torch.where(mask[:, t], advantage, next_advantage)
        next_value = torch.where(mask[:, t], values[:, t], next_value)
    return advantages, advantages + values


def policy_lambda(num_actions: Tensor, *, alpha: float) -> Tensor:
    """λ = 1 − 1/(α·l) of samples of l action tokens, `[sample]`; 0 where α·l ≤ 1."""
    return (1 - 1 / (alpha * num_actions.clamp(min=1))).clamp(min=0)


class SAOObjective:
    """One batch after another: `loss` for each pack, then `auxiliary_step` once, then `metrics`."""

    def __init__(self, options: SAOOptions, critic: Critic | None) -> None:
        assert critic is not None, "critic_kind never asks for none"
        self._options = options
        self._critic = critic
        self._targets: dict[int, Tensor] = {}

    @staticmethod
    def critic_kind(options: SAOOptions) -> CriticKind:
        """Say which critic the options need."""
        return options.critic

    def trains_policy(self, batch_seq: int) -> bool:
        """Whether the critic's warm-up is over."""
        return batch_seq >= self._options.critic_warmup_batches

    def loss(self, batch: Actions, logits: Tensor) -> tuple[Tensor, Sums]:
        """Give this pack's part of the actor's loss; remember the critic's targets. See the protocol."""
        logprobs = batch.logprobs(logits)
        with torch.no_grad():
            values = self._critic.values(batch)
        advantages, returns = self._advantages(batch, values)
        self._targets[batch.place] = returns
        eps_low, eps_high = self._options.eps_low, self._options.eps_high
        loss = sao_loss(
            logprobs,
            batch.behavior_logprobs,
            advantages,
            batch.action_mask,
            eps_low=eps_low,
            eps_high=eps_high,
        )
        ratios = torch.exp(logprobs.detach() - batch.behavior_logprobs)
        effective = _is_effective(ratios, eps_low=eps_low, eps_high=eps_high)
        sums = _policy_sums(batch, logprobs.detach(), effective) | _value_sums(batch, values, returns)
        return loss * (logprobs.shape[0] / batch.num_samples), sums

    def auxiliary_step(self, batch: Sequence[Actions]) -> Sums:
        """Update the critic towards the targets that it gave before this batch's updates."""
        targets, self._targets = self._targets, {}

        def loss_of(pack: Actions, values: Tensor) -> Tensor:
            errors = torch.where(pack.action_mask, values - targets[pack.place], 0)
            return errors.square().sum() / pack.num_actions

        norms = [self._critic.update(batch, loss_of) for _ in range(self._options.critic_steps_per_actor)]
        return {"critic/grad_norm_max": max(norms)} if norms else {}

    def metrics(self, sums: Sums) -> Mapping[str, float]:
        """Make the metrics of a batch; undefined ones are left out."""
        num_samples, num_actions = sums["num_samples"], sums["num_actions"]
        found = {
            "sao/policy_lag_max": sums["policy_lag_max"],
            "sao/policy_lag_mean": sums["policy_lag"] / num_samples,
            "sao/effective_token_rate": sums["num_effective"] / num_actions,
            "sao/ratio_mean": sums["ratio"] / num_actions,
            "sao/kl": sums["kl"] / num_actions,
            "train_rollout_logprob_abs_diff": sums["abs_diff"] / num_actions,
            "reward_mean": sums["reward"] / num_samples,
            "critic/loss": sums["error_squared"] / num_actions,
            "critic/value_mean": sums["value"] / num_actions,
        }
        if "critic/grad_norm_max" in sums:
            found["critic/grad_norm"] = sums["critic/grad_norm_max"]
        found |= _explained_variance(sums)
        return {name: value for name, value in found.items() if isfinite(value)}

    def _advantages(self, batch: Actions, values: Tensor) -> tuple[Tensor, Tensor]:
        """Advantages for the policy and targets for the critic; a loop over tokens, hence on the CPU."""
        mask, device = batch.action_mask.cpu(), values.device
        num_actions = mask.sum(1)
        rewards = torch.zeros(mask.shape, dtype=values.dtype)
        last = (num_actions - 1).clamp(min=0)
        rewards[torch.arange(mask.shape[0]), last] = batch.rewards.cpu().to(values.dtype)
        lam = policy_lambda(num_actions.to(values.dtype), alpha=self._options.lambda_alpha)
        gamma = self._options.gamma
        advantages, _ = gae(rewards, values.cpu(), mask, lam=lam, gamma=gamma)
        _, returns = gae(rewards, values.cpu(), mask, lam=1.0, gamma=gamma)
        return advantages.to(device), returns.to(device)


def _is_effective(ratios: Tensor, *, eps_low: float, eps_high: float) -> Tensor:
    """Whether a ratio lies strictly inside the trust region. NaN is let through, so that it is seen."""
    return ~((ratios <= 1 - eps_low) | (ratios >= 1 + eps_high))


def _policy_sums(batch: Actions, logprobs: Tensor, effective: Tensor) -> dict[str, float]:
    is_there = batch.action_mask.any(1)
    differences = (logprobs - batch.behavior_logprobs)[batch.action_mask].double()
    ratios = differences.exp()
    return {
        "num_samples": _total(is_there),
        "num_actions": _total(batch.action_mask),
        "policy_lag": _total(batch.policy_lags[is_there]),
        "policy_lag_max": float(batch.policy_lags[is_there].max()) if is_there.any() else 0.0,
        "num_effective": _total(effective[batch.action_mask]),
        "ratio": _total(ratios),
        "kl": _total(ratios - 1 - differences),
        "abs_diff": _total(differences.abs()),
        "reward": _total(batch.rewards[is_there]),
    }


def _value_sums(batch: Actions, values: Tensor, returns: Tensor) -> dict[str, float]:
    values, returns = values[batch.action_mask].double(), returns[batch.action_mask].double()
    errors = returns - values
    return {
        "value": _total(values),
        "return": _total(returns),
        "return_squared": _total(returns.square()),
        "error": _total(errors),
        "error_squared": _total(errors.square()),
    }


def _explained_variance(sums: Sums) -> dict[str, float]:
    """1 − Var(returns − values) / Var(returns); nothing when all returns are equal."""
    num = sums["num_actions"]
    variance = sums["return_squared"] / num - (sums["return"] / num) ** 2
    if variance <= VARIANCE_MIN * (1 + sums["return_squared"] / num):
        return {}
    unexplained = sums["error_squared"] / num - (sums["error"] / num) ** 2
    return {"critic/explained_variance": 1 - unexplained / variance}


def _total(tensor: Tensor) -> float:
    return float(tensor.double().sum())
