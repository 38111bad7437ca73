"""Shell: a gateway that swaps, in the test's own event loop; its chain and its recorder are in memory."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
from prometheus_client import CollectorRegistry

from gateway.catalog import Catalog
from gateway.composed import Parts, gateway_app, own_checks
from gateway.engines import Engines
from gateway.gate import Gate
from gateway.health import Health
from gateway.metrics import CallMetrics
from gateway.record import PROCESSED
from gateway.release_folders import ReleaseFolders
from gateway.server import bound_socket, server_for
from gateway.stage import Stage
from gateway.swap import SwapParts
from gateway.swap_metrics import SwapMetrics
from gateway.swap_report import SwapReport
from gateway.swapping import Swapping
from gateway.swapping_parts import Keeper, SwappingParts
from gateway.weight_sender import WeightSender
from schemas.artifacts import manifest_of
from schemas.errors import RejectedError
from schemas.events import ArtifactKind, Event, ModelSwapped, SwapFailed, SwapRequested, TrainingTarget
from schemas.ids import GatewayId, ReleaseId, ScenarioName, Sha256, SwapId, derived_id
from schemas.manifest import MANIFEST_NAME
from tests.gateway_rig import ListedLines, MemoryRecorder, with_settings

SCENARIO = ScenarioName("default")
TEMPLATE = Sha256("2" * 64)


def a_release_row(
    number: int, folder: Path, *, kind: ArtifactKind = ArtifactKind.CHECKPOINT, chain: int = 0
) -> dict[str, Any]:
    """A release whose files are in a folder, as the views show it."""
    return {
        "release_id": f"{chain:08x}{number:032x}",
        "release_seq": number,
        "kind": kind.value,
        "content_sha256": manifest_of(folder).content_sha256,
        "artifact_uri": folder.absolute().as_uri()
        if number == 0
        else f"lakefs://reef-default/{folder.name}/",
        "tokenizer_digest": "1" * 64,
    }


class MemoryChains:
    """Chains as the views show them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Mapping[str, Any]]] = {}

    async def releases(self, scenario: str) -> list[Mapping[str, Any]]:
        """Give a chain, newest first."""
        return list(reversed(self.rows.get(scenario, [])))

    async def latest(self, scenario: str) -> Mapping[str, Mapping[str, Any]]:
        """Give nothing: this gateway never ran before."""
        return {}


class FolderArtifacts:
    """Releases in a folder, by the last part of their address; a name in `missing` is not there."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.missing: set[str] = set()

    def fetch(self, uri: str, content_sha256: Sha256) -> Path:
        """Give the folder with its manifest."""
        if uri.startswith("file:"):
            folder = Path(unquote(urlsplit(uri).path))
            if manifest_of(folder).content_sha256 != content_sha256:
                raise RejectedError(
                    f"expected {folder} whole, got other files", reason="artifact_unavailable"
                )
            return folder
        name = uri.rstrip("/").rsplit("/", 1)[-1]
        if name in self.missing:
            raise RejectedError(f"expected {name}, got none", reason="artifact_unavailable")
        folder = self._root / name
        if not (folder / MANIFEST_NAME).exists() and not (folder / "config.json").exists():
            (folder / MANIFEST_NAME).write_bytes(manifest_of(folder).encode())
        return folder


@dataclass(slots=True, kw_only=True)
class SwapRig:
    """A running gateway."""

    url: str
    catalog: Catalog
    engines: Engines
    swapping: Swapping
    chains: MemoryChains
    artifacts: FolderArtifacts
    recorder: MemoryRecorder
    client: httpx.AsyncClient
    gate: Gate
    sender: WeightSender | None
    tasks: list["asyncio.Task[Any]"] = field(default_factory=list)

    @property
    def serving_seq(self) -> int | None:
        """What serves."""
        serving = self.catalog.add(SCENARIO).serving
        return None if serving is None else serving.release_seq

    async def publish(self, row: Mapping[str, Any], scenario: str = SCENARIO) -> None:
        """Publish a release and request its swap, as the log would tell."""
        self.chains.rows.setdefault(scenario, []).append(row)
        await self.swapping.hear(a_request(row, scenario))

    async def told(self, kind: type[Event], number: int = 1, timeout_s: float = 60.0) -> list[Any]:
        """Wait until so many events of a kind are recorded."""

        def found() -> list[Event]:
            return [event for event in self.recorder.events if isinstance(event, kind)]

        await until(lambda: len(found()) >= number, timeout_s)
        return found()

    async def swapped(self, number: int = 1, timeout_s: float = 60.0) -> ModelSwapped:
        """Wait for a swap; gives the newest."""
        event: ModelSwapped = (await self.told(ModelSwapped, number, timeout_s))[-1]
        return event

    async def swapped_to(self, row: Mapping[str, Any], timeout_s: float = 120.0) -> ModelSwapped:
        """Wait until a release was swapped in."""

        def found() -> list[ModelSwapped]:
            told = [event for event in self.recorder.events if isinstance(event, ModelSwapped)]
            return [event for event in told if event.release_id == row["release_id"]]

        await until(found, timeout_s)
        return found()[-1]

    async def swap(self, row: Mapping[str, Any], timeout_s: float = 120.0) -> ModelSwapped:
        """Publish a release and wait until it was swapped in."""
        await self.publish(row)
        return await self.swapped_to(row, timeout_s)

    async def failed(self, number: int = 1, timeout_s: float = 60.0) -> SwapFailed:
        """Wait for a failure; gives the newest."""
        event: SwapFailed = (await self.told(SwapFailed, number, timeout_s))[-1]
        return event


def a_request(row: Mapping[str, Any], scenario: str = SCENARIO) -> SwapRequested:
    """The request to serve a release."""
    return SwapRequested(
        swap_id=SwapId(derived_id("swap", row["release_id"])),
        scenario=ScenarioName(scenario),
        swap_seq=row["release_seq"],
        release_id=ReleaseId(row["release_id"]),
        release_seq=row["release_seq"],
        kind=ArtifactKind(row["kind"]),
        artifact_uri=row["artifact_uri"],
        content_sha256=Sha256(row["content_sha256"]),
        requested_at_us=1,
    )


async def until(holds: Any, timeout_s: float = 60.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running_swaps(
    engine_urls: Sequence[str],
    root: Path,
    *,
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    targets: Mapping[str, TrainingTarget] | None = None,
    base_folder: Path | None = None,
    base_model: str = "scripted",
    sender_command: Sequence[str] | None = None,
    transport: str = "folder",
    deadline_s: float = 30.0,
    timeout_s: float = 600.0,
    keepers: Mapping[str, Keeper] | None = None,
    gate: Gate | None = None,
) -> AsyncIterator[SwapRig]:
    """Run a gateway before engines; `rows` are the chains at its start, oldest first."""
    wake, registry, recorder = asyncio.Event(), CollectorRegistry(), MemoryRecorder()
    catalog = Catalog(ScenarioName(name) for name in rows)
    chains, artifacts = MemoryChains(), FolderArtifacts(root)
    chains.rows = {name: list(found) for name, found in rows.items()}
    gate = gate or Gate(wait_s_max=deadline_s)
    sender = None if sender_command is None else WeightSender(sender_command)
    roads = targets or dict.fromkeys(rows, TrainingTarget.FULL)
    async with Engines(engine_urls, wait_s=0.0, guard=wake.set) as engines:
        for engine in engines.engines:
            engine.logprobs_mode = PROCESSED
        swapping = Swapping(
            SwappingParts(
                catalog=catalog,
                engines=engines,
                stage=Stage(catalog, base_model=base_model, chat_template_digest=TEMPLATE),
                folders=ReleaseFolders(root / "own", fetched=artifacts, base_folder=base_folder, num_kept=3),
                swap=SwapParts(
                    catalog=catalog, gate=gate, sender=sender, transport=transport, deadline_s=deadline_s
                ),
                chains=chains,
                report=SwapReport(
                    catalog=catalog,
                    recorder=recorder,
                    metrics=SwapMetrics(registry),
                    gateway_id=GatewayId("gateway-0"),
                ),
                keepers=keepers or {},
                target_of=lambda name: roads[name],
            ),
            wake=wake,
        )
        parts = Parts(
            catalog=catalog,
            engines=engines,
            recorder=recorder,
            metrics=CallMetrics(registry),
            gate=gate,
            health=Health(checks=own_checks(catalog, engines), registry=registry),
            tokens=(),
            settings=with_settings(timeout_s=timeout_s),
            log=ListedLines([]),
        )
        server = server_for(gateway_app(parts))
        listener = bound_socket("127.0.0.1", 0)
        tasks = [asyncio.create_task(server._serve([listener])), asyncio.create_task(swapping.run())]
        await until(lambda: server.started or tasks[0].done())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with httpx.AsyncClient(base_url=url, timeout=timeout_s, trust_env=False) as client:
                yield SwapRig(
                    url=url,
                    catalog=catalog,
                    engines=engines,
                    swapping=swapping,
                    chains=chains,
                    artifacts=artifacts,
                    recorder=recorder,
                    client=client,
                    gate=gate,
                    sender=sender,
                )
        finally:
            assert not tasks[1].done(), tasks[1].exception()
            tasks[1].cancel()
            server.should_exit = server.force_exit = True
            await asyncio.gather(*tasks, return_exceptions=True)
            if sender is not None:
                await sender.end()
