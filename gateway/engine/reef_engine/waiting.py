"""Shell: on CPUs an engine's processes nap while they wait for one another.

vLLM's message queue turns in a loop for a second after each message, so on few cores the process that waits
for a step takes time from the worker that computes it, and from a trainer beside both: three that never rest
on two cores. Naps cost a fraction of a millisecond a step, which on a CPU takes tens of them. Not a wait for
the queue's notification: when little happens vLLM does that itself, but one that follows another closely may
be dropped on its way.
"""

import time

from vllm.distributed.device_communicators import shm_broadcast
from vllm.platforms import current_platform

NAP_S = 0.0005


class NappingCondition(shm_broadcast.SpinCondition):  # type: ignore[misc]
    """Looks as often as vLLM's own, less a nap between two looks."""

    def wait(self, timeout_ms: int | None = None) -> None:
        """Nap while messages are frequent, else wait as ever."""
        if time.monotonic() <= self.last_read + self.busy_loop_s:
            time.sleep(NAP_S)
        else:
            super().wait(timeout_ms)


def nap_between_looks() -> None:
    """Let queues of this process that are made from now on nap; on GPUs nothing is changed."""
    if current_platform.is_cpu():
        shm_broadcast.SpinCondition = NappingCondition
