"""Weight routes, scripted and real, keep the same rules of sessions, versions and pauses."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from deploy.embedded.model import prepare_model
from gateway.weight_routes import UNNAMED, WeightRoutes
from schemas.errors import RejectedError, UnavailableError
from tests.conftest import EngineEndpoint
from tests.scripted_upstream import running_upstream
from tests.scripted_weights import ScriptedWeights
from tests.swap_load import other_weights
from tests.swap_rig import until

S_MAX = 60.0


@pytest.fixture(scope="module", params=["scripted", pytest.param("real", marks=pytest.mark.engine)])
def engine_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "real":
        endpoint: EngineEndpoint = request.getfixturevalue("tiny_engine")
        yield endpoint.url
        asyncio.run(restored(endpoint.url, endpoint.model_dir))  # others share it
        return
    with running_upstream(weights=ScriptedWeights()) as upstream:
        yield upstream.url


@pytest.fixture
async def routes(engine_url: str) -> AsyncIterator[WeightRoutes]:
    async with aiohttp.ClientSession() as session:
        yield WeightRoutes(engine_url, session)


async def restored(url: str, folder: Path) -> None:
    """Give an engine the weights back that it started with."""
    async with aiohttp.ClientSession() as session:
        engine = WeightRoutes(url, session)
        await staged(engine, folder)
        await engine.finish(UNNAMED, S_MAX)


async def phase(routes: WeightRoutes) -> str:
    (worker,) = await routes.staging(S_MAX)
    return worker.phase


async def staged(routes: WeightRoutes, folder: Path) -> None:
    order = {"swap_id": "swap", "transport": "folder", "folder": str(folder), "deadline_s": S_MAX}
    await routes.begin(order, S_MAX)
    while await phase(routes) == "staging":
        await asyncio.sleep(0.02)


async def test_an_engine_says_from_which_folder_it_started_and_takes_a_name_for_its_weights(
    routes: WeightRoutes,
) -> None:
    assert await routes.num_workers(S_MAX) == 1
    assert (await routes.model_folder(S_MAX)).is_absolute()
    assert await routes.version(S_MAX) in (UNNAMED, "a-name", "swapped")
    await routes.name("a-name", S_MAX)
    assert await routes.version(S_MAX) == "a-name"


async def test_a_session_ends_with_finish_which_names_the_weights(
    routes: WeightRoutes, base: Path, tmp_path: Path
) -> None:
    await staged(routes, other_weights(base, tmp_path / "other", seed=3))
    (worker,) = await routes.staging(S_MAX)
    assert (worker.phase, worker.swap_id, worker.is_open) == ("ready", "swap", True)
    assert worker.num_bytes > 0
    await routes.pause(S_MAX)
    assert await routes.is_paused(S_MAX)
    await routes.finish("swapped", S_MAX)
    assert await routes.version(S_MAX) == "swapped"
    await routes.resume(S_MAX)
    assert not await routes.is_paused(S_MAX)
    (worker,) = await routes.staging(S_MAX)
    assert (worker.phase, worker.is_open) == ("idle", False)


async def test_a_second_session_is_refused_until_the_first_is_abandoned(
    routes: WeightRoutes, base: Path, tmp_path: Path
) -> None:
    folder = other_weights(base, tmp_path / "other", seed=4)
    await staged(routes, folder)
    with pytest.raises(UnavailableError):
        await routes.begin({"swap_id": "second", "folder": str(folder)}, S_MAX)
    await routes.abandon(S_MAX)
    (worker,) = await routes.staging(S_MAX)
    assert (worker.phase, worker.is_open) == ("idle", False)
    await staged(routes, folder)
    await routes.abandon(S_MAX)


async def test_an_engine_without_these_routes_is_not_swappable() -> None:
    with running_upstream() as upstream:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(RejectedError) as refused:
                await WeightRoutes(upstream.url, session).version(S_MAX)
    assert refused.value.reason == "engine_not_swappable"


async def test_a_route_that_does_not_answer_is_left_at_the_deadline() -> None:
    weights = ScriptedWeights(hangs={"pause"})
    with running_upstream(weights=weights) as upstream:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(UnavailableError) as refused:
                await WeightRoutes(upstream.url, session).pause(0.2)
    assert refused.value.reason == "deadline"
    await until(lambda: weights.calls == ["pause"])


@pytest.fixture(scope="module")
def base(cache_dir: Path) -> Path:
    """The folder of the tiny model."""
    return Path(prepare_model("tiny", cache_dir).source)
