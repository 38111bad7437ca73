"""Shell: what one stream worker is started with, cut out of the configuration."""

from dataclasses import dataclass
from pathlib import Path

from schemas.bus import KafkaAccess
from schemas.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """One worker of a deployment."""

    deployment: str
    """Names groups and transactions: another deployment on the same cluster has its own (STREAMS 8)."""
    number: int
    """Which worker of this machine, from 0."""
    access: KafkaAccess
    """The way to the log."""
    blobs_url: str
    """Where large fields are."""
    folder: Path
    """Of this worker: Faust wants one, and leaves nothing in it."""
    tick_s: float
    """Least time between two ticks of a partition."""
    metrics_port: int | None
    """Where /metrics is shown; None for nowhere."""


def worker_settings(
    settings: Settings, access: KafkaAccess, *, number: int, metrics_port: int | None
) -> WorkerSettings:
    """Cut a worker's piece."""
    return WorkerSettings(
        deployment=settings.reef.deployment,
        number=number,
        access=access,
        blobs_url=settings.blobs_url,
        folder=settings.reef.state_dir.absolute() / "streams" / str(number),
        tick_s=settings.streams.tick_s,
        metrics_port=metrics_port,
    )
