"""Shell: a whole gateway in a thread: a scripted engine behind it, a real broker beside it."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry

from gateway.auth import Token
from gateway.catalog import Catalog
from gateway.composed import Parts, gateway_app, own_checks
from gateway.engines import Engines
from gateway.gate import Gate
from gateway.health import Health
from gateway.keeping import Keeping, KeepingOptions, opened_keeping
from gateway.metrics import CallMetrics
from gateway.outbox import OutboxOptions
from gateway.record import PROCESSED
from gateway.scenarios import ScenarioOptions
from gateway.server import bound_socket, server_for
from gateway.tree_answers import check_size
from schemas.artifact_fetch import TREES_FOLDER, FetchedArtifacts, LakefsAccess
from schemas.bus import KafkaAccess
from schemas.events import TrainingTarget
from schemas.ids import ScenarioName
from schemas.recipe import load_recipe
from schemas.settings.scenarios import Scenario
from schemas.settings.streams import StreamsSettings
from schemas.topics import NUM_PARTITIONS_DEFAULT
from tests.gateway_rig import CALL_SETTINGS, RECEIPT_KEY, ListedLines, serving

SAO = "recipes.sao.recipe:SAORecipe"


@dataclass(slots=True, kw_only=True)
class KeepingRig:
    """A running gateway with everything it keeps."""

    url: str
    keeping: Keeping
    registry: CollectorRegistry
    loop: asyncio.AbstractEventLoop
    lines: list[dict[str, object]]

    def run(self, work: Any) -> Any:
        """Run a coroutine in the gateway's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)


def a_decided_scenario(name: ScenarioName, **options: Any) -> Scenario:
    """Decide a scenario of SAO."""
    made = load_recipe(SAO).options_type.model_validate(options)
    return Scenario(name=name, recipe=SAO, options=made, target=TrainingTarget.FULL)


@contextmanager
def running_keeping(
    access: KafkaAccess,
    folder: Path,
    *,
    scenarios: Sequence[Scenario],
    engine_urls: Sequence[str] = (),
    tokens: Sequence[Token] = (),
    command_wait_s_max: float = 20.0,
    is_creating: bool = False,
    outbox: OutboxOptions | None = None,
    lakefs: LakefsAccess | None = None,
) -> Iterator[KeepingRig]:
    """Run a gateway until the block ends; the folder may be that of an earlier one."""
    (folder / "blobs").mkdir(parents=True, exist_ok=True)  # what other gateways keep is gone here, not away
    options = KeepingOptions(
        folder=folder,
        access=access,
        blobs_url=(folder / "blobs").as_uri(),
        outbox=outbox or OutboxOptions(folder=folder, num_partitions=NUM_PARTITIONS_DEFAULT),
        scenarios=ScenarioOptions(
            configured=scenarios,
            make=a_decided_scenario,
            streams=StreamsSettings(),
            receipt_keys=(RECEIPT_KEY,),
            score_abs_max=1e6,
        ),
        trees=FetchedArtifacts(folder / TREES_FOLDER, lakefs, check=check_size),
        body_bytes_max=4 * 1024 * 1024,
        command_wait_s_max=command_wait_s_max,
    )
    runner = _Runner(options, engine_urls, tokens, is_creating=is_creating)
    thread = threading.Thread(target=runner.run, name="gateway", daemon=True)
    thread.start()
    assert runner.started.wait(30)
    if runner.rig is None:
        raise AssertionError("the gateway did not start") from runner.failure
    try:
        yield runner.rig
    finally:
        runner.stopped.set()
        thread.join(40)
        assert not thread.is_alive()


class _Runner:
    def __init__(
        self,
        options: KeepingOptions,
        engine_urls: Sequence[str],
        tokens: Sequence[Token],
        *,
        is_creating: bool,
    ) -> None:
        self._is_creating = is_creating
        self._options, self._engine_urls, self._tokens = options, engine_urls, tokens
        self.started, self.stopped = threading.Event(), threading.Event()
        self.rig: KeepingRig | None = None
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            uvloop.run(self._serve())
        except Exception as error:  # noqa: BLE001 - shown by whoever waits for the start
            self.failure = error
        finally:
            self.started.set()

    async def _serve(self) -> None:
        catalog, registry = Catalog(()), CollectorRegistry()
        async with (
            opened_keeping(
                self._options, catalog=catalog, registry=registry, problems=_no_problems
            ) as keeping,
            Engines(self._engine_urls, wait_s=0.0) as engines,
        ):
            for engine in engines.engines:
                engine.logprobs_mode = PROCESSED
            for scenario in self._options.scenarios.configured:
                catalog.add(scenario.name).serving = serving()
            await self._answer(catalog, registry, keeping, engines)

    async def _answer(
        self, catalog: Catalog, registry: CollectorRegistry, keeping: Keeping, engines: Engines
    ) -> None:
        lines: list[dict[str, object]] = []
        parts = Parts(
            catalog=catalog,
            engines=engines,
            recorder=keeping.outbox,
            metrics=CallMetrics(registry),
            gate=Gate(wait_s_max=2.0),
            health=Health(checks={**own_checks(catalog, engines), **keeping.checks}, registry=registry),
            tokens=self._tokens,
            settings=replace(CALL_SETTINGS, body_bytes_max=4 * 1024 * 1024),
            log=ListedLines(lines),
            routers=keeping.routers,
            create=keeping.scenarios.create_by_call if self._is_creating else None,
        )
        server = server_for(gateway_app(parts))
        listener = bound_socket("127.0.0.1", 0)
        serving_task = asyncio.create_task(server._serve([listener]))
        while not server.started and not serving_task.done():
            await asyncio.sleep(0.005)
        self.rig = KeepingRig(
            url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            keeping=keeping,
            registry=registry,
            loop=asyncio.get_running_loop(),
            lines=lines,
        )
        self.started.set()
        await asyncio.to_thread(self.stopped.wait)
        server.should_exit = server.force_exit = True
        await serving_task


async def _no_problems() -> dict[str, str]:
    return {}
