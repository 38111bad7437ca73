"""Shell: the gateway's hot swap put together from settings: where releases come from, how weights travel.

Not the swap: gateway/swapping.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from deploy.embedded.engine_environment import engine_python
from deploy.embedded.engine_keeper import EngineKeeper
from deploy.embedded.model import PREPARED_MODELS, Model, prepare_model
from deploy.lakefs_access import find_lakefs_access
from deploy.settings import read_cache_dir
from deploy.stack import engine_device
from gateway.catalog import Catalog
from gateway.engines import Engines
from gateway.gate import Gate
from gateway.holding import is_swappable
from gateway.keeping import Keeping
from gateway.release_folders import ReleaseFolders
from gateway.stage import Stage
from gateway.swap import SwapParts
from gateway.swap_metrics import SwapMetrics
from gateway.swap_report import SwapReport
from gateway.swapping import Swapping
from gateway.swapping_parts import SwappingParts
from gateway.transport import choose_transport
from gateway.weight_routes import WeightRoutes
from gateway.weight_sender import WeightSender
from schemas.artifact_fetch import ARTIFACTS_FOLDER, NUM_KEPT, FetchedArtifacts, LakefsAccess
from schemas.errors import RejectedError, UnavailableError
from schemas.events import TrainingTarget
from schemas.ids import GatewayId, ScenarioName, Sha256
from schemas.manifest import Manifest
from schemas.settings import Settings
from schemas.settings.scenarios import scenarios_of
from schemas.settings.settings import process_environment
from schemas.tokenizer import chat_template_digest

NO_TEMPLATE = Sha256("0" * 64)
"""Where the model's folder is not on this machine."""
_GPUS = "nvidia[0-9]*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a swap works on."""

    catalog: Catalog
    """Scenarios."""
    engines: Engines
    """Open, and guarded by the same event."""
    gate: Gate
    """Closed while engines are paused."""
    keeping: Keeping
    """What the log says, and where facts go."""
    registry: CollectorRegistry
    """For what is counted."""


@asynccontextmanager
async def opened_swapping(
    settings: Settings, serving: Serving, wake: asyncio.Event
) -> AsyncIterator[Swapping]:
    """Put it together; its caller runs it. `wake` is set when an engine comes up."""
    inference = settings.inference
    model = _local_model(inference.model)
    python = engine_python(engine_device(settings), read_cache_dir())
    transport = choose_transport(
        inference.transport,
        is_on_gpu=engine_device(settings) == "cuda",
        num_gpus=_num_gpus(),
        has_sender=python.exists(),
    )
    async with AsyncExitStack() as stack:
        sender = None
        if transport != "folder":
            sender = await stack.enter_async_context(WeightSender((str(python), "-m", "reef_engine.sender")))
        yield Swapping(
            SwappingParts(
                catalog=serving.catalog,
                engines=serving.engines,
                stage=Stage(
                    serving.catalog,
                    base_model=inference.model if model is None else model.name,
                    chat_template_digest=NO_TEMPLATE
                    if model is None
                    else chat_template_digest(Path(model.source)),
                ),
                folders=_folders(settings, model),
                swap=SwapParts(
                    catalog=serving.catalog,
                    gate=serving.gate,
                    sender=sender,
                    transport=transport,
                    deadline_s=inference.swap_deadline_s,
                ),
                chains=serving.keeping.views,
                report=SwapReport(
                    catalog=serving.catalog,
                    recorder=serving.keeping.outbox,
                    metrics=SwapMetrics(serving.registry),
                    gateway_id=GatewayId(settings.reef.gateway_id),
                ),
                keepers=_keepers(settings, model),
                target_of=_targets(serving.keeping),
            ),
            wake=wake,
        )


async def refuse_unswappable(settings: Settings, engines: Engines) -> None:
    """Refuse to train what an engine could never be given (RULINGS 5); one that is not up yet is not asked.

    Raises RejectedError.
    """
    trained = [one.name for one in scenarios_of(settings) if one.target is not TrainingTarget.NONE]
    if not trained:
        return
    for engine in engines.engines:
        try:
            can_swap = await is_swappable(WeightRoutes(engine.url, engines.session))
        except UnavailableError:
            continue
        if not can_swap:
            raise RejectedError(
                f"expected an engine at {engine.url} that takes new weights, got one that cannot, and "
                f"{trained[0]} trains: set training.target to none, or start it as docs/stack.md says",
                reason="engine_not_swappable",
            )


def _num_gpus() -> int:
    return len(list(Path("/dev").glob(_GPUS)))


def _local_model(given: str) -> Model | None:
    """Find the base model's folder if it is on this machine."""
    if given not in PREPARED_MODELS and not (Path(given).expanduser() / "config.json").is_file():
        return None
    model = prepare_model(given, read_cache_dir())
    return model if model.is_local else None


def _folders(settings: Settings, model: Model | None) -> ReleaseFolders:
    own = settings.reef.state_dir.absolute() / "gateway" / settings.reef.gateway_id
    return ReleaseFolders(
        own / "releases",
        fetched=LateArtifacts(settings),
        base_folder=None if model is None else Path(model.source),
        num_kept=settings.inference.releases_kept,
    )


class LateArtifacts:
    """Fetches; lakeFS's keys are looked for at each fetch, since an embedded lakeFS may start after us."""

    def __init__(
        self,
        settings: Settings,
        *,
        folder: str = ARTIFACTS_FOLDER,
        num_kept: int = NUM_KEPT,
        check: Callable[[Manifest], None] = lambda manifest: None,
    ) -> None:
        """Look for nothing yet; the folder is below the state folder."""
        self._settings, self._num_kept, self._check = settings, num_kept, check
        self._folder = settings.reef.state_dir.absolute() / folder

    def fetch(self, uri: str, content_sha256: Sha256) -> Path:
        """Give a folder of exactly this content. Raises RejectedError, UnavailableError."""
        access: LakefsAccess | None = None
        if not uri.startswith("file:"):
            access = find_lakefs_access(self._settings, process_environment())
        fetched = FetchedArtifacts(self._folder, access, num_kept=self._num_kept, check=self._check)
        return fetched.fetch(uri, content_sha256)


def _keepers(settings: Settings, model: Model | None) -> dict[str, EngineKeeper]:
    """Give who starts the embedded engine; engines of others are their operators'."""
    if not settings.inference.is_embedded:
        return {}
    source = settings.inference.model if model is None else model.source
    url = f"http://127.0.0.1:{settings.inference.port}"
    return {url: EngineKeeper(settings.reef.state_dir.absolute(), model=source)}


def _targets(keeping: Keeping) -> Callable[[ScenarioName], TrainingTarget]:
    def target_of(name: ScenarioName) -> TrainingTarget:
        try:
            return keeping.scenarios.get(name).scenario.target
        except RejectedError:  # its recipe is not installed here
            return TrainingTarget.NONE

    return target_of
