"""Shell: on CPUs an engine's processes sleep while they wait for one another.

vLLM's message queue turns in a loop for a second after each message, so on few cores the process that waits
for a step takes time from the worker that computes it, and from a trainer beside both: three that never rest
on two cores. Waking up costs a fraction of a millisecond a step, which on a CPU takes tens of them.
"""

from typing import Any

from vllm.distributed.device_communicators import shm_broadcast
from vllm.platforms import current_platform


class SleepingCondition(shm_broadcast.SpinCondition):  # type: ignore[misc]
    """Waits for the notification at once, as vLLM's own does after a second without a message."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.busy_loop_s = 0


def sleep_at_once() -> None:
    """Let queues of this process that are made from now on wait asleep; on GPUs nothing is changed."""
    if current_platform.is_cpu():
        shm_broadcast.SpinCondition = SleepingCondition
