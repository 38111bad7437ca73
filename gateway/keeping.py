"""Shell: everything by which the gateway keeps and remembers, opened in order and closed in reverse.

Not the composition root: it hands the settings' pieces and the open engines' side in, and takes routes out.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from gateway.aside import Aside
from gateway.call_routes import Problems, StatusParts, call_router
from gateway.catalog import Catalog
from gateway.chain_commands import WAIT_S_MAX, ChainCommands
from gateway.courier_process import CourierProcess
from gateway.errands import Follow, Start
from gateway.explaining import Explaining
from gateway.following import Following
from gateway.health import Check
from gateway.importing import Importing
from gateway.log_search import LogSearch
from gateway.lookup import Lookup
from gateway.outbox import Outbox, OutboxOptions
from gateway.outbox_metrics import OutboxMetrics
from gateway.projection import CHAINS
from gateway.release_folders import Fetching
from gateway.report_routes import report_router
from gateway.reporting import IdIndex, Reporting, ReportMetrics
from gateway.scenario_routes import ScenarioParts, scenario_router
from gateway.scenarios import ScenarioOptions, Scenarios
from gateway.tree_routes import TreeParts, tree_router
from gateway.trees import Trees
from gateway.views import Views
from gateway.views_metrics import show_views_lag
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess
from schemas.logs import LogFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingOptions:
    """What the keeping side needs."""

    folder: Path
    """Of this gateway alone, in `reef.state_dir`."""
    access: KafkaAccess
    """The log."""
    blobs_url: str
    """Where large fields go."""
    outbox: OutboxOptions
    """Where the outbox is and what it promises."""
    scenarios: ScenarioOptions
    """Those of the file, and how more are made."""
    trees: Fetching
    """Brings what agents pull."""
    body_bytes_max: int
    """Largest request."""
    command_wait_s_max: float = WAIT_S_MAX
    """How long a rollback or promotion waits for the release service."""
    metrics_ports: Mapping[str, int] = field(default_factory=dict)
    """Where the other services show their metrics."""
    log_format: LogFormat = "json"
    """Of the courier's log, which goes where ours does."""
    log_level: str = "info"
    """Of the courier's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What is open."""

    outbox: Outbox
    """The recorder of calls."""
    views: Views
    """What the log says: heads of chains, too."""
    following: Following
    """Reads what concerns chains into the views; tells listeners."""
    courier: CourierProcess
    """Brings the outbox to Kafka, and reads calls, reports and outcomes into the views."""
    scenarios: Scenarios
    """Every scenario known."""
    routers: Sequence[APIRouter]
    """Everything under /reef."""
    checks: Mapping[str, Check]
    """For /readyz."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    outbox: Outbox
    views: Views
    following: Following
    courier: CourierProcess
    scenarios: Scenarios


@asynccontextmanager
async def opened_keeping(
    options: KeepingOptions, *, catalog: Catalog, registry: CollectorRegistry, problems: Problems
) -> AsyncIterator[Keeping]:
    """Open the outbox, the views and what stands on them. Raises UnavailableError on an unusable disk.

    The scenarios of the file are in the log, or in the outbox on their way to it, when this returns.
    """
    blobs, views = open_blob_store(options.blobs_url), Views(options.folder)
    try:
        async with AsyncExitStack() as stack:
            courier = CourierProcess(
                _start_of_courier(options), on_scenarios_moved=lambda: scenarios.recall(views)
            )
            outbox = Outbox(
                options.outbox,
                open_producer=courier.producer,
                blobs=blobs,
                metrics=OutboxMetrics(registry),
            )
            scenarios = Scenarios(options.scenarios, catalog=catalog, recorder=outbox)
            await stack.enter_async_context(courier)
            await stack.enter_async_context(outbox)
            await scenarios.recall(views)
            await scenarios.announce()
            following = Following(
                options.access,
                views,
                blobs=blobs,
                num_partitions=options.outbox.num_partitions,
                topics=CHAINS,
            )
            courier.follow(Follow(folder=options.folder, num_partitions=options.outbox.num_partitions))
            await stack.enter_async_context(following)
            opened = _Opened(
                outbox=outbox, views=views, following=following, courier=courier, scenarios=scenarios
            )
            yield _composed(options, opened, catalog, registry, problems)
    finally:
        views.close()


def _start_of_courier(options: KeepingOptions) -> Start:
    return Start(
        access=options.access,
        blobs_url=options.blobs_url,
        log_format=options.log_format,
        log_level=options.log_level,
    )


def _composed(
    options: KeepingOptions,
    opened: _Opened,
    catalog: Catalog,
    registry: CollectorRegistry,
    problems: Problems,
) -> Keeping:
    outbox, views, scenarios = opened.outbox, opened.views, opened.scenarios
    index = IdIndex(views, opened.courier, outbox)
    aside = Aside()
    reporting = Reporting(
        scenarios=scenarios, recorder=outbox, index=index, aside=aside, metrics=ReportMetrics(registry)
    )
    importing = Importing(
        catalog=catalog,
        scenarios=scenarios,
        reporting=reporting,
        recorder=outbox,
        index=index,
        aside=aside,
        receipt_key=options.scenarios.receipt_keys[0],
    )
    lookup = Lookup(
        views=views,
        recorder=outbox,
        catalog=catalog,
        access=options.access,
        blobs=open_blob_store(options.blobs_url),
        receipt_keys=options.scenarios.receipt_keys,
        num_partitions=options.outbox.num_partitions,
    )
    show_views_lag(registry, lambda: min(opened.following.as_of_us, opened.courier.as_of_us))
    search = LogSearch(options.access, num_partitions=options.outbox.num_partitions)
    explaining = Explaining(views=views, lookup=lookup, catalog=catalog, search=search)
    commands = ChainCommands(
        views=views, following=opened.following, recorder=outbox, wait_s_max=options.command_wait_s_max
    )
    status = StatusParts(
        catalog=catalog,
        views=views,
        views_problem=lambda: opened.following.problem or opened.courier.problem,
        outbox=outbox,
        problems=problems,
        metrics_ports=options.metrics_ports,
    )
    parts = ScenarioParts(
        catalog=catalog,
        scenarios=scenarios,
        views=views,
        commands=commands,
        body_bytes_max=options.body_bytes_max,
    )
    return Keeping(
        outbox=outbox,
        views=views,
        following=opened.following,
        courier=opened.courier,
        scenarios=scenarios,
        routers=(
            report_router(
                catalog=catalog,
                scenarios=scenarios,
                reporting=reporting,
                importing=importing,
                aside=aside,
                body_bytes_max=options.body_bytes_max,
            ),
            call_router(lookup, explaining, status),
            scenario_router(parts),
            tree_router(TreeParts(catalog=catalog, views=views, trees=Trees(options.trees))),
        ),
        checks={"outbox": _outbox_check(outbox)},
    )


def _outbox_check(outbox: Outbox) -> Check:
    async def check() -> str | None:
        if not outbox.is_full:
            return None
        return (
            f"expected the outbox below its limit, got {outbox.size_bytes} bytes: bring Kafka back, "
            "or raise reef.outbox_bytes_max"
        )

    return check
