"""Shell: `reef streams`: the workers that fold the log, one process each.

Not the dependencies: Kafka runs elsewhere (`reef stack up`). With one worker this process is the worker; with
more it starts them, and starts again those that end. A worker waits until Kafka answers.
"""

import asyncio
from typing import Annotated

import structlog
import typer

from deploy.beginning import begin_service
from deploy.configuration import ConfigFile, read_configuration
from deploy.keep_topics import topics_before_stop
from deploy.workers import run_workers
from schemas.bus import kafka_access
from schemas.settings import Settings
from schemas.settings.secrets import kafka_login
from schemas.settings.settings import process_environment

METRICS_PORT_OFFSET = 2
"""Behind those of release and trainer."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()

Workers = Annotated[int | None, typer.Option("--workers", min=1, max=256, help="default: streams.workers")]
Number = Annotated[int | None, typer.Option("--worker", min=0, hidden=True, help="run as this one of them")]


def streams(
    context: typer.Context, config: ConfigFile = None, workers: Workers = None, worker: Number = None
) -> None:
    """Run the stream workers. Any setting may follow as --section.key value."""
    settings = read_configuration(config, context.args).settings
    num_workers = settings.streams.workers if workers is None else workers
    is_parent = worker is None and num_workers > 1
    title = "reef: streams" if is_parent else f"reef: streams {worker or 0}"
    begin_service(settings, service="streams", title=title)
    if is_parent:
        words = ["streams", *(["-c", str(config)] if config else []), *context.args]
        raise typer.Exit(run_workers([[*words, "--worker", str(number)] for number in range(num_workers)]))
    run_numbered(settings, worker or 0)


def run_numbered(settings: Settings, number: int) -> None:
    """Be one worker."""
    from streams.settings import worker_settings  # noqa: PLC0415 - Faust is not needed for help
    from streams.worker import run_worker  # noqa: PLC0415

    access = kafka_access(settings.kafka, kafka_login(settings, process_environment()))
    port = settings.observability.metrics_port + METRICS_PORT_OFFSET + number
    if not asyncio.run(topics_before_stop(settings, access)):
        _log.info("worker_stopped")
        return
    run_worker(worker_settings(settings, access, number=number, metrics_port=port))
