"""Shell: one staging: a thread that fills a shadow model while the engine serves, and what became of it.

Not the exchange, which the engine's own thread does. Nobody waits for a thread that hangs: it is left behind,
with its group thrown away, and what it may still do is not looked at.
"""

import gc
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from reef_engine.memory import give_back
from reef_engine.priority import Starter
from reef_engine.shadow import Pair, filled, num_bytes_of, paired
from reef_engine.tensors import Named, Transfer, folder_tensors

Phase = Literal["staging", "ready", "failed"]
KEPT_MODELS_MAX = 2.5
"""How much free memory stays, in sizes of the model: a staging needs it as it comes, and packed."""
EXPECTED = (RuntimeError, ValueError, LookupError, OSError, AttributeError, TypeError)
"""What torch, vLLM's loaders and disks raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """What a staging works on."""

    live: Any
    """The model that serves."""
    outline: Any
    """Its shape."""
    config: Any
    """vLLM's configuration of it."""
    device: torch.device
    """Where it is."""


def leave_bound_core() -> None:
    """Let this thread run on every core: vLLM binds the one that computes, and all that it starts."""
    os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))


class Staging:
    """Filling one shadow."""

    def __init__(
        self, swap_id: str, source: Path | Transfer, models: Models, starter: Starter, *, deadline_s: float
    ) -> None:
        """Begin at once, in a thread of its own."""
        self.swap_id = swap_id
        self._source, self._models = source, models
        self._late_at_s = time.monotonic() + deadline_s
        self._pairs: tuple[Pair, ...] | None = None
        self._problem: str | None = None
        self.num_bytes = 0
        self._has_ended = threading.Event()
        starter.start(self._run)

    def _run(self) -> None:
        try:
            self._fill()
        finally:
            self._has_ended.set()
            if isinstance(self._source, Transfer):
                self._source.say_ended(self._problem or "")  # now: whoever looks then finds the same

    def _fill(self) -> None:
        if self._models.device.type == "cpu":
            leave_bound_core()
        gc.collect()  # the shadow before this one; inside the pause it would cost half a second
        if self._models.device.type == "cpu":
            give_back(int(KEPT_MODELS_MAX * num_bytes_of(self._models.outline)))
        try:
            shadow = filled(self._models.outline, self._counted(), self._models.config, self._models.device)
            if self._models.device.type == "cuda":
                torch.cuda.current_stream().synchronize()
            self._pairs = paired(self._models.live, shadow)
        except EXPECTED as error:
            self._problem = f"{type(error).__name__}: {error}"

    def _counted(self) -> Iterator[Named]:
        tensors = (
            self._source.tensors() if isinstance(self._source, Transfer) else folder_tensors(self._source)
        )
        for name, tensor in tensors:
            self.num_bytes += tensor.nbytes
            yield name, tensor

    def look(self) -> tuple[Phase, str]:
        """Say how far it is, and why it failed."""
        has_ended = self._has_ended.is_set()  # looked at first: what it left is there then
        if self._pairs is not None:
            return "ready", ""
        if self._problem is not None:
            return "failed", self._problem
        if has_ended:
            return "failed", "the staging thread ended without a result: see the engine's log"
        if time.monotonic() >= self._late_at_s:
            return "failed", "deadline: the weights did not come in time"
        return "staging", ""

    def pairs(self) -> tuple[Pair, ...]:
        """Give what is to be exchanged, waiting for it to the deadline. Raises RuntimeError."""
        self._has_ended.wait(max(0.0, self._late_at_s - time.monotonic()))
        phase, problem = self.look()
        if phase != "ready" or self._pairs is None:
            raise RuntimeError(f"expected staged weights, got {phase}: {problem}")
        return self._pairs

    def abandon(self) -> None:
        """Leave it behind."""
        if isinstance(self._source, Transfer):
            self._source.abandon()
