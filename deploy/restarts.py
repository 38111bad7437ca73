"""Pure: whether and when a program that ended is started again. deploy/supervisor.py starts it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How patient a supervisor is with one program."""

    restarts_max: int | None
    """Starts again within the window; None: without end."""
    window_s: float
    """How long an end is held against a program."""
    delay_s_first: float
    """Wait before the first start again; each further end within the window doubles it."""
    delay_s_max: float
    """The longest wait."""


EMBEDDED = RestartPolicy(restarts_max=3, window_s=300.0, delay_s_first=0.5, delay_s_max=30.0)
"""Kafka, lakeFS and the engine: one that ends four times in five minutes needs a person."""
OWN_SERVICE = RestartPolicy(restarts_max=None, window_s=300.0, delay_s_first=0.5, delay_s_max=30.0)
"""Our services resume where they were, so they are always started again."""


def recent(policy: RestartPolicy, ends_s: Sequence[float], now_s: float) -> tuple[float, ...]:
    """Keep the ends that still count."""
    return tuple(end_s for end_s in ends_s if now_s - end_s < policy.window_s)


def restart_delay_s(policy: RestartPolicy, ends_s: Sequence[float], now_s: float) -> float | None:
    """Say how long to wait after the last of `ends_s`; None gives the program up.

    `ends_s` are the times of its ends, this one included, on the clock of `now_s`.
    """
    num_ends = len(recent(policy, ends_s, now_s))
    if policy.restarts_max is not None and num_ends > policy.restarts_max:
        return None
    doublings = min(max(num_ends - 1, 0), 30)  # the cap keeps the power a number
    return float(min(policy.delay_s_first * 2**doublings, policy.delay_s_max))
