"""Shell: one gateway, put together from its settings, until it is told to stop. `reef gateway` runs it.

Not the dependencies: Kafka and the engine run elsewhere (`reef stack up`), and may come later than this.
"""

import asyncio
import gc
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import structlog
import uvloop
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from deploy.embedded.model import model_name
from deploy.hot_swap import LateArtifacts, Serving, opened_swapping, refuse_unswappable
from deploy.keep_topics import keep_topics
from gateway.auth import Token
from gateway.catalog import Catalog
from gateway.composed import Parts, gateway_app, own_checks
from gateway.engines import Engines
from gateway.gate import Gate
from gateway.health import Health
from gateway.keeping import Keeping, KeepingOptions, opened_keeping
from gateway.metrics import CallMetrics
from gateway.outbox import OutboxOptions
from gateway.request_log import StderrRequestLog
from gateway.scenarios import ScenarioOptions
from gateway.server import bound_socket, server_for
from gateway.settings import CallSettings, call_settings, door_tokens
from gateway.swapping import Swapping
from gateway.tree_answers import check_size
from schemas.artifact_fetch import NUM_TREES_KEPT, TREES_FOLDER
from schemas.bus import KafkaAccess, kafka_access
from schemas.ids import ScenarioName
from schemas.settings import ScenarioSettings, Settings
from schemas.settings.receipt_keys import obtain_receipt_keys
from schemas.settings.scenarios import Scenario, beside, scenario_of, scenarios_of
from schemas.settings.secrets import kafka_login, tokens_of
from schemas.settings.settings import process_environment

CATCH_UP_S_MAX = 10.0
"""How long a start waits for the log; after it, what is remembered of the log must do."""
GC_THRESHOLDS = (50_000, 20, 50)
"""Rarer than Python's own: a call makes thousands of objects that die by themselves."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What the settings name and the environment holds."""

    tokens: tuple[Token, ...]
    """Who may call."""
    receipt_keys: tuple[bytes, ...]
    """What proves receipts."""
    access: KafkaAccess
    """The way to the log."""


def run_gateway(settings: Settings) -> None:
    """Run one gateway until a signal says stop."""
    listener = bound_socket(settings.reef.host, settings.reef.port)
    secrets = read_secrets(settings)
    uvloop.run(serve(settings, secrets, listener))


def read_secrets(settings: Settings) -> Secrets:
    """Take the secrets out of the environment, once."""
    environ = process_environment()
    keys = obtain_receipt_keys(settings, environ)
    return Secrets(
        tokens=door_tokens(tokens_of(settings, environ)),
        receipt_keys=tuple(key.get_secret_value().encode() for key in keys),
        access=kafka_access(settings.kafka, kafka_login(settings, environ)),
    )


async def serve(settings: Settings, secrets: Secrets, listener: socket.socket) -> None:
    """Serve until a signal says stop."""
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(opened_parts(settings, secrets))
        server = server_for(
            gateway_app(parts), cert_file=settings.reef.tls.cert_file, key_file=settings.reef.tls.key_file
        )
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        host, port = listener.getsockname()[:2]
        _log.info("gateway_started", host=host, port=port, scenarios=list(parts.catalog.names()))
        await server.serve([listener])
    _log.info("gateway_stopped")


@asynccontextmanager
async def opened_parts(settings: Settings, secrets: Secrets) -> AsyncIterator[Parts]:
    """Open everything that a gateway consists of, in order; close it in reverse."""
    registry, wake = new_registry(), asyncio.Event()
    catalog = Catalog(scenario.name for scenario in settings.reef.scenarios)
    engines = Engines(settings.inference.engine_urls, wait_s=settings.inference.engine_wait_s, guard=wake.set)
    gate = Gate(wait_s_max=settings.inference.swap_deadline_s)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(lambda: keep_topics(settings, secrets.access)))
        await stack.enter_async_context(engines)
        await refuse_unswappable(settings, engines)
        checks = own_checks(catalog, engines, required=catalog.names())  # not what is created by name later
        health = Health(checks=checks, registry=registry)
        keeping = await stack.enter_async_context(
            opened_keeping(
                keeping_options(settings, secrets),
                catalog=catalog,
                registry=registry,
                problems=health.problems,
            )
        )
        checks |= keeping.checks
        serving = Serving(catalog=catalog, engines=engines, gate=gate, keeping=keeping, registry=registry)
        swapping = await stack.enter_async_context(opened_swapping(settings, serving, wake))
        await begin_swapping(swapping, keeping)
        await stack.enter_async_context(running(swapping.run))
        yield Parts(
            catalog=catalog,
            engines=engines,
            recorder=keeping.outbox,
            metrics=CallMetrics(registry),
            gate=gate,
            health=health,
            tokens=secrets.tokens,
            settings=calls_of(settings, secrets),
            log=StderrRequestLog(
                settings.observability.log_format,
                is_quiet=settings.observability.log_level in ("warning", "error"),
            ),
            routers=keeping.routers,
            create=keeping.scenarios.create_by_call
            if settings.reef.allow_implicit_scenario_creation
            else None,
        )


async def begin_swapping(swapping: Swapping, keeping: Keeping) -> None:
    """Let requests be heard, and read the log first: a start serves the head of the chain (RULINGS 23)."""
    keeping.following.listen(swapping.hear)
    if not await keeping.following.caught_up(CATCH_UP_S_MAX):
        _log.warning("log_not_read", detail=keeping.following.problem)


def new_registry() -> CollectorRegistry:
    """Make a registry with what Prometheus expects of every process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def calls_of(settings: Settings, secrets: Secrets) -> CallSettings:
    """Cut the piece for calls."""
    return call_settings(
        settings.reef,
        settings.inference,
        public_model=model_name(settings.inference.model),
        receipt_keys=secrets.receipt_keys,
    )


def keeping_options(settings: Settings, secrets: Secrets) -> KeepingOptions:
    """Cut the piece for what keeps and remembers."""
    folder = settings.reef.state_dir / "gateway" / settings.reef.gateway_id
    return KeepingOptions(
        folder=folder,
        access=secrets.access,
        blobs_url=settings.blobs_url,
        outbox=OutboxOptions(
            folder=folder,
            num_partitions=settings.kafka.partitions,
            durability=settings.reef.durability,
            bytes_max=settings.reef.outbox_bytes_max,
            when_full=settings.reef.outbox_full,
        ),
        scenarios=ScenarioOptions(
            configured=scenarios_of(settings),
            make=partial(created_scenario, settings),
            streams=settings.streams,
            receipt_keys=secrets.receipt_keys,
            score_abs_max=settings.reef.score_abs_max,
        ),
        trees=LateArtifacts(settings, folder=TREES_FOLDER, num_kept=NUM_TREES_KEPT, check=check_size),
        body_bytes_max=settings.reef.body_bytes_max,
        metrics_ports=metrics_ports(settings),
        log_format=settings.observability.log_format,
        log_level=settings.observability.log_level,
    )


def created_scenario(settings: Settings, name: ScenarioName) -> Scenario:
    """Decide a scenario created by name."""
    return beside(scenarios_of(settings), scenario_of(settings, ScenarioSettings(name=name)))


def metrics_ports(settings: Settings) -> dict[str, int]:
    """Say where the other services show their metrics (RULINGS 41)."""
    first = settings.observability.metrics_port
    workers = {f"streams-{n}": first + 2 + n for n in range(settings.streams.workers)}
    return {"release": first, "trainer": first + 1, **workers}


@asynccontextmanager
async def running(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Do something beside the block; a refusal of it ends the process as a signal would."""
    task = asyncio.ensure_future(work())
    task.add_done_callback(_stop_on_failure)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _stop_on_failure(task: "asyncio.Future[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("gateway_cannot_run", detail=str(task.exception()))
        signal.raise_signal(signal.SIGTERM)
