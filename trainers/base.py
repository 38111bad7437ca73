"""Shell: the weights that a batch must start from are brought into the learner, by the shortest road.

Kept: the learner holds them already. Restored: a checkpoint of that content is loaded, optimizers and all.
Fresh: the release itself is loaded, in fp32, under a new optimizer; a critic goes on as it is, since what it
learned about rewards is not undone with the policy.
"""

from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Protocol

import structlog
import torch
from torch import Tensor

from schemas.errors import RejectedError, UnavailableError
from schemas.events import BatchSealed, OptimizerState
from schemas.ids import Sha256
from trainers.checkpoint import Checkpoints
from trainers.export import ADAPTER_FILE, network_name_of
from trainers.model import Lora
from trainers.ranks import Ranks
from trainers.state import State
from trainers.step import Learner
from trainers.weights import named_weights, put_weights, trainable

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0) + (30.0,) * 10
"""Between tries to fetch a release; then the process ends, and its supervisor goes on trying."""

_log = structlog.get_logger()


class Artifacts(Protocol):
    """Where the files of releases come from."""

    def fetch(self, uri: str, content_sha256: Sha256) -> Path:
        """Give a local folder of exactly that content. Raises RejectedError, UnavailableError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bases:
    """The roads from a base to a learner."""

    checkpoints: Checkpoints
    """Kept tensors."""
    artifacts: Artifacts
    """Releases."""
    ranks: Ranks
    """Who walks them together."""
    lora: Lora | None
    """An adapter is trained instead of all weights."""
    untrained: dict[str, Tensor]
    """The adapter as it began, this rank's share; a release without adapter means these."""


def untrained_of(learner: Learner, lora: Lora | None) -> dict[str, Tensor]:
    """Remember an adapter before its first step; nothing for full weights."""
    if lora is None:
        return {}
    return {name: tensor.detach().clone() for name, tensor in trainable(learner.policy.model).items()}


def road_to(state: State, base: Sha256) -> OptimizerState:
    """Choose the shortest road to a content."""
    if state.held is not None and state.held_content == base:
        return OptimizerState.KEPT
    return OptimizerState.RESTORED if state.holding(base) else OptimizerState.FRESH


def bring(learner: Learner, state: State, sealed: BatchSealed, bases: Bases) -> OptimizerState:
    """Bring a batch's base into the learner; all ranks call it. Raises RejectedError `base_unavailable`."""
    road = road_to(state, sealed.base_content_sha256)
    kept = state.holding(sealed.base_content_sha256)
    if road is OptimizerState.RESTORED and kept is not None:
        bases.checkpoints.load(learner, kept.folder, num_steps=kept.step)
    if road is OptimizerState.FRESH:
        folder = _fetched(sealed, bases)
        bases.ranks.together(lambda: _load_release(learner, folder, bases))
        learner.optimizer.state.clear()
    return road


def _fetched(sealed: BatchSealed, bases: Bases) -> Path:
    """Fetch the release, again and again while its store is away; all ranks wait together."""
    for pause_s in (*PAUSES_S, None):
        try:
            return bases.ranks.on_first(
                lambda: bases.artifacts.fetch(sealed.base_artifact_uri, sealed.base_content_sha256)
            )
        except RejectedError as error:
            raise RejectedError(str(error), reason="base_unavailable") from error
        except UnavailableError as error:
            if pause_s is None:
                raise
            _log.warning("base_awaited", base_release_id=sealed.base_release_id, detail=str(error))
            sleep(pause_s)
    raise AssertionError("the last try returns or raises")


def _load_release(learner: Learner, folder: Path, bases: Bases) -> None:
    if bases.lora is None:
        put_weights(named_weights(learner.policy.model), folder)
        return
    adapter = trainable(learner.policy.model)
    if (folder / ADAPTER_FILE).exists():
        put_weights(adapter, folder, name_of=network_name_of)
        return
    with torch.no_grad():
        for name, tensor in bases.untrained.items():
            adapter[name].copy_(tensor)
