"""Shell: one batch becomes one step of the policy, and whatever its objective's critic learns on the way.

Not the choice of weights before it, nor their keeping after it: trainers/loop.py has both. The order is the
mathematics: values and advantages, then the critic's updates, then the policy's step; and nothing is changed
before all ranks know that loss and gradients are finite.

Axes: as in trainers/packing.py.

Next: trainers/checkpoint.py
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter
from traceback import clear_frames

import torch
from torch.optim import AdamW

from schemas.errors import ReefError, RejectedError, UnavailableError
from schemas.objective import Actions, Objective, Sums
from trainers.batch import Batch
from trainers.critic import TrainedCritic
from trainers.gradients import clip, gradient_norm
from trainers.model import Policy
from trainers.packing import Pack, packs_of
from trainers.parallel import is_spread, settle
from trainers.ranks import Ranks

GRAD_NORM = "grad_norm"
TOKENS_PER_S = "tokens_per_s"
STEP_S = "step_s"
MEASURED = frozenset({TOKENS_PER_S, STEP_S})
"""Metrics that differ from run to run: they stand in events, never in a manifest."""
CPU_PACK_TOKENS = 512
"""Alone on a CPU: 74 tokens a second of 135M weights, where packs of 192 gave 66 and of 1,236 gave 60."""
CPU_OUT_OF_MEMORY = "can't allocate memory"


@dataclass(slots=True, kw_only=True)
class Learner:
    """What changes with every batch."""

    policy: Policy
    """Spread over the ranks."""
    optimizer: AdamW
    """Of the policy's trainable parameters."""
    critic: TrainedCritic | None
    """As the objective asked for."""
    objective: Objective
    """The recipe's mathematics."""
    num_steps: int
    """Steps of the policy so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What bounds a step."""

    pack_tokens_max: int
    """Tokens of a forward pass."""
    gradient_norm_max: float
    """The policy's gradient is clipped to it."""


def train(learner: Learner, batch: Batch, ranks: Ranks, limits: StepLimits) -> Mapping[str, float]:
    """Take one step on a batch; give its metrics. All ranks call it together.

    Raises RejectedError on all ranks: `non_finite` (gradients are cleared, but a critic may have moved: go
    back to the checkpoint), `out_of_memory`; UnavailableError `out_of_memory` where all must start anew.
    """
    began_s = perf_counter()
    try:
        metrics = dict(_step(learner, batch, ranks, limits))
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        clear_frames(error.__traceback__)  # they hold what filled the memory
        raise _out_of_memory(error, learner, ranks) from error
    finally:
        learner.optimizer.zero_grad()
        settle(learner.policy)
        if learner.critic is not None:
            settle(learner.critic.network)
    took_s = perf_counter() - began_s
    return metrics | {STEP_S: took_s, TOKENS_PER_S: batch.num_tokens / took_s}


def _step(learner: Learner, batch: Batch, ranks: Ranks, limits: StepLimits) -> Mapping[str, float]:
    packs = [
        pack.to(ranks.device)
        for pack in packs_of(
            batch, rank=ranks.rank, num_ranks=ranks.size, pack_tokens_max=pack_tokens_for(ranks, limits)
        )
    ]
    if learner.critic is not None:
        learner.critic.show(packs)
    trains_policy = learner.objective.trains_policy(batch.sealed.batch_seq)
    with nullcontext() if trains_policy else torch.no_grad():
        seen, sums = _accumulate(learner, batch, packs, ranks)
    norm = gradient_norm(learner.policy)
    ranks.refuse_non_finite("gradient", norm)
    sums |= ranks.add_up(learner.objective.auxiliary_step(seen))
    if trains_policy:
        clip(learner.policy, norm, limits.gradient_norm_max)
        learner.optimizer.step()
        learner.num_steps += 1
    return {**learner.objective.metrics(sums), GRAD_NORM: norm.item()}


def pack_tokens_for(ranks: Ranks, limits: StepLimits) -> int:
    """Choose how long packs are: a mask on the CPU is quadratic, but several ranks talk once a pack."""
    if ranks.size > 1 or ranks.device.type != "cpu":
        return limits.pack_tokens_max
    return min(limits.pack_tokens_max, CPU_PACK_TOKENS)


def _accumulate(
    learner: Learner, batch: Batch, packs: Sequence[Pack], ranks: Ranks
) -> tuple[list[Actions], dict[str, float]]:
    """Go through the rank's packs, adding up gradients and the parts of metrics."""
    seen: list[Actions] = []
    parts: list[Sums] = []
    losses = []
    for place, pack in enumerate(packs):
        logits, hidden = learner.policy(pack)
        actions = pack.actions(hidden, place=place, batch=batch)
        loss, sums = learner.objective.loss(actions, logits)
        if torch.is_grad_enabled():
            (loss * ranks.size).backward()  # type: ignore[no-untyped-call]  # undoes FSDP's averaging
        seen.append(actions)
        parts.append(sums)
        losses.append(loss.detach())
    ranks.refuse_non_finite("loss", torch.stack(losses))
    return seen, ranks.add_up(_added(parts))


def _added(parts: Sequence[Sums]) -> dict[str, float]:
    """Add parts as `Sums` says."""
    return {name: (max if name.endswith("_max") else sum)(part[name] for part in parts) for name in parts[0]}


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or CPU_OUT_OF_MEMORY in str(error)


def _out_of_memory(error: RuntimeError, learner: Learner, ranks: Ranks) -> ReefError:
    """Alone with whole networks we go on without the batch; others wait for us, and FSDP is left half-way."""
    message = (
        f"expected the batch to fit into the memory of rank {ranks.rank}, got {str(error)[:200]}: lower "
        "training.pack_tokens_max or switch training.has_activation_checkpointing on"
    )
    if ranks.size == 1 and not is_spread(learner.policy):
        return RejectedError(message, reason="out_of_memory")
    return UnavailableError(message, reason="out_of_memory")
