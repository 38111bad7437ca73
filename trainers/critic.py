"""Shell: the two critics that an objective may ask for, each with an optimizer of its own.

Not their loss: the objective gives it, pack by pack.

Axes: `[sample, token]` as in schemas/objective.py.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from schemas.objective import Actions
from trainers.gradients import clip, gradient_norm
from trainers.model import ValueHead, ValueModel
from trainers.packing import Pack
from trainers.ranks import Ranks


class TrainedCritic:
    """A value network and its optimizer. Before each batch it is shown the rank's packs."""

    def __init__(
        self, network: ValueHead | ValueModel, optimizer: AdamW, ranks: Ranks, *, gradient_norm_max: float
    ) -> None:
        self.network: nn.Module = network
        self.optimizer = optimizer
        self._ranks = ranks
        self._gradient_norm_max = gradient_norm_max
        self._reads_states = isinstance(network, ValueHead)
        self._packs: Sequence[Pack] = ()

    def show(self, packs: Sequence[Pack]) -> None:
        """Name the packs that `Actions.place` will count."""
        self._packs = packs

    def values(self, actions: Actions) -> Tensor:
        """Estimate `[sample, token]`, each value from the place before the action."""
        seen = actions.hidden if self._reads_states else self._packs[actions.place]
        return actions.rows(self.network(seen))

    def update(self, packs: Sequence[Actions], loss_of: Callable[[Actions, Tensor], Tensor]) -> float:
        """Make one optimizer step; give the gradient's norm. Raises RejectedError `non_finite` before it."""
        losses = []
        for pack in packs:
            loss = loss_of(pack, self.values(pack))
            (loss * self._ranks.size).backward()  # type: ignore[no-untyped-call]  # undoes the averaging
            losses.append(loss.detach())
        self._ranks.average_gradients(self.network)
        norm = gradient_norm(self.network)
        self._ranks.refuse_non_finite("critic loss and gradient", torch.stack(losses), norm)
        clip(self.network, norm, self._gradient_norm_max)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm.item()
