"""Shell: what the partitions of a worker share, and how a worker ends when it cannot go on."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import structlog

from schemas.blobs import BlobStore
from schemas.bus import BusLimits, KafkaAccess, Publisher, Reader, Resolver
from schemas.records import Place
from streams.metrics import StreamMetrics

LOOK_S = 5.0
"""How often a partition that hears nothing looks at its log: Faust once passed one over for a minute."""
EXIT_BROKEN = 70
"""The supervisor starts the process again."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all partitions of a worker share."""

    deployment: str
    """Names groups and transactions."""
    access: KafkaAccess
    """The way to the log."""
    blobs: BlobStore
    """Where large fields are."""
    resolver: Resolver
    """From records to events."""
    reader: Reader
    """For read-backs and gaps, one at a time."""
    reading: asyncio.Lock
    """Held while the reader is used."""
    opening: asyncio.Semaphore
    """Partitions opened at once."""
    ticker: Publisher
    """Writes ticks."""
    tick_s: float
    """Least time between two ticks of a partition."""
    metrics: StreamMetrics
    """What is counted."""
    is_assigned: Callable[[Place], bool]
    """Whether Faust says that a partition is ours."""
    end_process: Callable[[str], NoReturn]
    """Ends everything at once: nothing uncommitted is lost, since the log has it."""
    look_s: float = LOOK_S
    """Least time between two looks of a partition that hears nothing."""
    limits: BusLimits = field(default_factory=BusLimits)
    """How long Kafka may take to answer a partition."""

    @property
    def group(self) -> str:
        """Consumer group, for Faust and for lag displays."""
        return f"{self.deployment}-streams"


def end_process(why: str) -> NoReturn:
    """End the process at once, for its supervisor to start again."""
    _log.error("worker_ended", reason=why)
    os._exit(EXIT_BROKEN)
