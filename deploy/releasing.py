"""Shell: the release service, put together from its settings, until it is told to stop.

Not its options: deploy/commands/release.py reads those.
"""

import asyncio
import signal
from contextlib import suppress

import structlog

from deploy.embedded.model import model_folder
from deploy.keep_topics import keep_topics
from deploy.lakefs_access import find_lakefs_access
from deploy.settings import read_cache_dir
from release.base_model import BaseModel, describe_base_model
from release.composed import Configured, Service, make_service, run_service
from release.settings import ReleaseSettings
from schemas.blobs import open_blob_store
from schemas.bus import kafka_access
from schemas.settings import Settings
from schemas.settings.scenarios import scenarios_of
from schemas.settings.secrets import kafka_login
from schemas.settings.settings import process_environment

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


def run_releases(settings: Settings) -> None:
    """Run the release service until a signal says stop."""
    service = make_service(release_settings(settings))
    service.metrics.serve(service.settings.metrics_port)
    asyncio.run(serve(service, settings))


async def serve(service: Service, settings: Settings) -> None:
    """Work until a signal says stop."""
    configured = [(scenario.name, scenario.recipe) for scenario in scenarios_of(settings)]
    working = asyncio.ensure_future(_work(service, settings, configured))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    _log.info("release_started", scenarios=[name for name, _ in configured])
    with suppress(asyncio.CancelledError):
        await working
    _log.info("release_stopped")


async def _work(service: Service, settings: Settings, configured: Configured) -> None:
    await keep_topics(settings, service.settings.kafka)
    await run_service(service, configured)


def release_settings(settings: Settings) -> ReleaseSettings:
    """Cut the piece for the release service, and describe its base model. Raises RejectedError."""
    environ = process_environment()
    state_dir = settings.reef.state_dir.absolute()
    state_dir.mkdir(parents=True, exist_ok=True)
    return ReleaseSettings(
        kafka=kafka_access(settings.kafka, kafka_login(settings, environ)),
        blobs=open_blob_store(settings.blobs_url),
        lakefs=find_lakefs_access(settings, environ),
        storage_namespace=settings.lakefs.storage_namespace,
        state_dir=state_dir,
        base=base_model(settings),
        evaluation=settings.evaluation,
        metrics_port=settings.observability.metrics_port,
        live_engine=settings.inference.engine_urls[0],
    )


def base_model(settings: Settings) -> BaseModel:
    """Find the folder of the configured model, and digest it. Raises RejectedError."""
    folder = model_folder(settings.inference.model, read_cache_dir(), wanted="the base model for release 0")
    return describe_base_model(folder)
