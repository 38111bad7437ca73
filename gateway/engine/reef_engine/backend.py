"""Shell: the weight-transfer backend `reef` as vLLM drives it: start, update (which only begins), finish.

vLLM keeps one session open from start to finish and closes it when an update raises: so an update that asks
for it raises on purpose. What raises in finish leaves a session that nothing reopens: a restart must.
"""

import gc
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.logger import init_logger

from reef_engine.groups import Seat
from reef_engine.priority import Starter
from reef_engine.ranks import WorkerPlace, group_rank
from reef_engine.shadow import exchange, outline, require_swappable
from reef_engine.staging import EXPECTED, Models, Staging
from reef_engine.tensors import Transfer

ABANDONED = "reef: the session is closed as was asked"
REHEARSAL = "rehearsal"
"""The swap_id of no swap."""
REHEARSAL_S_MAX = 120.0
"""How long a start waits for it."""

_log = init_logger("vllm.reef")
"""Below vLLM's own, which is the one that it shows."""


@dataclass
class InitInfo(WeightTransferInitInfo):
    """Nothing: a group lives for one transfer."""


@dataclass(kw_only=True)
class UpdateInfo(WeightTransferUpdateInfo):
    """Where the weights come from."""

    swap_id: str
    transport: str = "folder"
    folder: str = ""
    port: int = 0
    first_rank: int = 1
    group_size: int = 2
    deadline_s: float = 30.0
    is_abandoned: bool = False


class ReefTransferEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """One worker's side."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        """Make the outline now, while nothing is served; a model that cannot be swapped serves without."""
        super().__init__(config, vllm_config, device, model)
        self._staging: Staging | None = None
        self._is_broken = False
        self._refusal, shape = "", None
        try:
            require_swappable(vllm_config, device)
            shape = outline(vllm_config)
        except EXPECTED as error:
            self._refusal = f"{type(error).__name__}: {error}"
        self._starter = Starter()
        if device.type == "cpu":
            self._starter.let_others_yield()
        self._models = Models(live=model, outline=shape, config=self.model_config, device=device)
        is_rehearsed = device.type == "cpu" and not self._refusal
        if is_rehearsed:
            self._rehearse()
        gc.collect()
        gc.freeze()  # what is here stays: a staging then looks at shadows only, which takes no second
        self._spare = self._stage_served() if is_rehearsed else None  # its memory is the first swap's

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Do nothing: a group lives for one transfer."""

    def start_weight_update(self) -> None:
        """Forget what was staged before."""
        self._drop()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Begin to stage, and return at once. Raises RuntimeError to close the session when asked to."""
        info = self.parse_update_info(update_info)
        self._drop()
        if info.is_abandoned:
            raise RuntimeError(ABANDONED)
        if self._refusal:
            raise RuntimeError(self._refusal)
        self._staging = Staging(
            info.swap_id, self._source(info), self._models, self._starter, deadline_s=info.deadline_s
        )

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Never called: `update_weights` begins the staging itself."""
        raise NotImplementedError

    def finish_weight_update(self) -> None:
        """Exchange the weights. Raises RuntimeError when they are not all here."""
        staging, self._is_broken = self._staging, True
        if staging is None:
            raise RuntimeError("expected staged weights, got none: begin with update_weights")
        exchange(staging.pairs(), self.device)
        self._staging, self._is_broken = None, False

    def shutdown(self) -> None:
        """Leave nothing under way."""
        self._drop()

    def look(self) -> dict[str, Any]:
        """Say how far the staging is; `absent` when this model cannot be swapped."""
        if self._refusal:
            return _said("absent", detail=self._refusal)
        if self._is_broken:
            return _said("broken", detail="a finish failed")
        if self._staging is None:
            return _said("idle")
        phase, detail = self._staging.look()
        found = {"swap_id": self._staging.swap_id, "num_bytes": self._staging.num_bytes}
        return {**_said(phase, detail=detail), **found}

    def _rehearse(self) -> None:
        """Swap the model by itself: on a CPU the first swaps then find the memory that later ones find."""
        began_s = time.monotonic()
        try:
            exchange(self._stage_served().pairs(), self.device)
        except RuntimeError as error:
            _log.warning("reef: no swap was rehearsed, so that the first two take longer: %s", error)
        else:
            _log.info("reef: a swap was rehearsed in %.1f s", time.monotonic() - began_s)

    def _stage_served(self) -> Staging:
        """Begin to stage what is served, from where it was loaded."""
        source = Path(self.model_config.model)
        return Staging(REHEARSAL, source, self._models, self._starter, deadline_s=REHEARSAL_S_MAX)

    def _source(self, info: UpdateInfo) -> Path | Transfer:
        if info.transport == "folder":
            return Path(info.folder)
        parallel = self.parallel_config
        place = WorkerPlace(
            rank=parallel.rank,
            world_size=parallel.world_size,
            data_parallel_index=parallel.data_parallel_index,
        )
        rank = group_rank(place, first_rank=info.first_rank, group_size=info.group_size)
        seat = Seat(rank=rank, group_size=info.group_size, deadline_s=info.deadline_s)
        return Transfer(transport=info.transport, port=info.port, seat=seat, device=self.device)

    def _drop(self) -> None:
        if self._staging is not None:
            self._staging.abandon()
        self._staging = self._spare = None


def _said(phase: str, *, detail: str = "") -> dict[str, Any]:
    return {"phase": phase, "swap_id": "", "detail": detail, "num_bytes": 0}
