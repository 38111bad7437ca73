"""Swaps of the real engine: under load, past a sender that dies, and through a finish that raises.

One engine for all of it, since each takes a minute to start; each test has a chain of its own.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.engine import Engine
from deploy.embedded.engine_environment import engine_python, find_device
from deploy.embedded.served_folder import write_served_folder
from gateway.gate import Gate
from gateway.weight_routes import WeightRoutes
from schemas.events import SwapFailed, SwapFailure
from tests.conftest import running_engine
from tests.swap_load import greedy, other_weights, users
from tests.swap_rig import SCENARIO, SwapRig, a_release_row, running_swaps, until

pytestmark = pytest.mark.engine

NUM_SWAPS = 10
Span = tuple[int, int]
"""A release's number, and how many tokens in a row are its."""


@pytest.fixture(scope="module")
def engine(make_state_dir: Callable[[str], Path]) -> Iterator[Engine]:
    """The real engine, with an extension that can break a finish."""
    arguments = ("--worker-extension-cls=mishaps.MishapExtension", "--enable-scale-out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        with running_engine("tiny", make_state_dir("swap-engine"), extra_arguments=arguments) as found:
            yield found


@pytest.fixture(scope="module")
def base(engine: Engine) -> Path:
    """The base model's folder."""
    return Path(engine.model.source)


@pytest.fixture(scope="module")
def contents(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Weights of two releases."""
    root = tmp_path_factory.mktemp("contents")
    return [other_weights(base, root / f"content-{seed}", seed=seed) for seed in (1, 2)]


class EngineOfTest:
    """Restarts the engine as the deployment does."""

    def __init__(self, engine: Engine, state_dir: Path) -> None:
        self._engine, self._state_dir = engine, state_dir
        self.num_restarts = 0

    async def keep(self, folder: str) -> None:
        """Start from this folder the next time."""
        write_served_folder(self._state_dir, model=self._engine.model.source, folder=folder)

    async def restart(self) -> None:
        """End it and start it again."""
        self.num_restarts += 1
        await asyncio.to_thread(self._engine.daemon.kill)
        await asyncio.to_thread(self._engine.start)


@asynccontextmanager
async def gateway(
    engine: Engine, contents: list[Path], cache_dir: Path, *, chain: int, **options: Any
) -> AsyncIterator[SwapRig]:
    """Run a gateway whose sender sends over gloo."""
    base = Path(engine.model.source)
    state_dir = engine.daemon.launch.folder.parent
    settings: dict[str, Any] = {
        "rows": {SCENARIO: [a_release_row(0, base, chain=chain)]},
        "base_folder": base,
        "base_model": engine.model.name,
        "sender_command": (str(engine_python(find_device(), cache_dir)), "-m", "reef_engine.sender"),
        "transport": "gloo",
        "deadline_s": 120.0,
        "keepers": {engine.url: EngineOfTest(engine, state_dir)},
        **options,
    }
    async with running_swaps([engine.url], contents[0].parent, **settings) as rig:
        await until(lambda: rig.engines.engines[0].is_admitted, 120)
        yield rig


async def test_an_engine_on_a_cpu_rehearses_a_swap_before_it_serves(
    engine: Engine, contents: list[Path], cache_dir: Path
) -> None:
    async with gateway(engine, contents, cache_dir, chain=0) as rig:
        (worker,) = await WeightRoutes(engine.url, rig.engines.session).staging(10.0)
        assert (worker.phase, worker.is_open) == ("idle", False)
        assert await greedy(rig)
    if find_device() == "cpu":
        assert "reef: a swap was rehearsed in " in engine.daemon.launch.log_path.read_text()


async def test_swaps_under_load_fail_nobody_and_bring_exactly_the_weights_that_were_asked_for(
    engine: Engine, contents: list[Path], cache_dir: Path
) -> None:
    async with gateway(engine, contents, cache_dir, chain=1) as rig:
        outputs: dict[int, list[str]] = {0: await greedy(rig)}
        for number in (1, 2):
            await rig.swap(a_release_row(number, contents[number - 1], chain=1))
            outputs[number] = await greedy(rig)
        assert outputs[0] != outputs[1] != outputs[2]
        async with users(rig, num_streaming=4, num_plain=2) as load:
            await until(lambda: load.num_streams > 4)
            for number in range(3, 3 + NUM_SWAPS):
                await rig.swap(a_release_row(number, contents[(number - 1) % 2], chain=1))
        assert load.failures == []
        assert load.num_whole > 0
        assert await greedy(rig) == outputs[2 - NUM_SWAPS % 2]
        calls = rig.recorder.calls()
        for call in calls:
            counts = [span.num_tokens for span in call.weight_spans]
            assert sum(counts) == call.usage.completion or set(counts) == {-1}
            seqs = [span.release_seq for span in call.weight_spans]
            assert seqs == sorted(set(seqs))
        assert any(len(call.weight_spans) > 1 for call in calls)


async def counted_and_said(rig: SwapRig, engine: Engine) -> tuple[list[Span], list[Span]]:
    """Generate on the route that names versions: what we count meanwhile, what the engine says at the end."""
    state = rig.catalog.add(SCENARIO)
    assert state.serving is not None
    sampling = {"max_tokens": 96, "ignore_eos": True, "temperature": 1.0}
    body = {"token_ids": [1, 2, 3], "sampling_params": sampling, "stream": True}
    said: list[Span] = []
    spans = state.streams.open(state.serving, is_buffered=False)
    try:
        async with rig.client.stream("POST", f"{engine.url}/inference/v1/generate", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                spans.add(len(choice["token_ids"] or ()), asyncio.get_running_loop().time())
                seqs = {row["release_id"]: row["release_seq"] for row in rig.chains.rows[SCENARIO]}
                for run in choice["weight_versions"] or ():
                    said.append((seqs[run["version"]], run["end"] - run["start"]))
    finally:
        state.streams.remove(spans)
    return [(span.release_seq, span.num_tokens) for span in spans.finish()], said


async def test_tokens_are_counted_to_the_release_that_the_engine_itself_names(
    engine: Engine, contents: list[Path], cache_dir: Path
) -> None:
    """Issue 7: by a route that no client calls, since it alone tells versions."""
    async with gateway(engine, contents, cache_dir, chain=7) as rig:
        await rig.swap(a_release_row(1, contents[0], chain=7))
        pairs: list[tuple[list[Span], list[Span]]] = []

        async def go_on() -> None:
            while True:
                pairs.append(await counted_and_said(rig, engine))

        going = [asyncio.create_task(go_on()) for _ in range(3)]
        for number in (2, 3):
            before = len(pairs)
            await rig.swap(a_release_row(number, contents[number % 2], chain=7))
            await until(lambda before=before: len(pairs) >= before + 3)
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        assert all(counted == said for counted, said in pairs), pairs
        assert sum(len(counted) > 1 for counted, _ in pairs) >= 2, "each swap met answers under way"


async def test_a_sender_that_dies_before_the_pause_costs_a_retry_and_no_call(
    engine: Engine, contents: list[Path], cache_dir: Path
) -> None:
    async with gateway(engine, contents, cache_dir, chain=2) as rig:
        assert rig.sender is not None
        await rig.swap(a_release_row(1, contents[0], chain=2))
        pid = rig.sender.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        async with users(rig, num_streaming=2, num_plain=1) as load:
            last = a_release_row(2, contents[1], chain=2)
            await rig.publish(last)
            await until(lambda: load.num_streams > 1)
            os.kill(pid, signal.SIGKILL)
            failure = await rig.failed()
            assert failure.reason is SwapFailure.SENDER_FAILED
            assert failure.serving_release_id == a_release_row(1, contents[0], chain=2)["release_id"]
            assert rig.serving_seq == 1
            await rig.swapped_to(last)  # after RETRY_S_FIRST
        assert load.failures == []


class FatalGate(Gate):
    """Kills a process at the moment at which a swap closes it, which is when the pause begins."""

    pid: int | None = None

    def close(self) -> None:
        """Close, and kill."""
        super().close()
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)


async def test_a_sender_that_dies_in_the_pause_is_not_missed(
    engine: Engine, contents: list[Path], cache_dir: Path
) -> None:
    """CASES 4: everything is staged by then; the next swap has a sender of its own."""
    gate = FatalGate(wait_s_max=120.0)
    async with gateway(engine, contents, cache_dir, chain=6, gate=gate) as rig:
        assert rig.sender is not None
        outputs = []
        for number in (1, 2):
            await rig.swap(a_release_row(number, contents[number - 1], chain=6))
            outputs.append(await greedy(rig))
        dead = gate.pid = rig.sender.pid
        assert dead is not None
        async with users(rig, num_streaming=2, num_plain=1) as load:
            await until(lambda: load.num_streams > 1)
            await rig.swap(a_release_row(3, contents[0], chain=6))
        assert load.failures == []
        assert await greedy(rig) == outputs[0]
        gate.pid = None
        await rig.swap(a_release_row(4, contents[1], chain=6))
        assert await greedy(rig) == outputs[1]
        assert rig.sender.pid not in (None, dead)
        assert not [one for one in rig.recorder.events if isinstance(one, SwapFailed)]


async def test_workers_that_read_the_folder_themselves_get_the_same_weights(
    engine: Engine, contents: list[Path], cache_dir: Path
) -> None:
    options: dict[str, Any] = {"sender_command": None, "transport": "folder"}
    async with gateway(engine, contents, cache_dir, chain=3) as rig:
        await rig.swap(a_release_row(1, contents[0], chain=3))
        sent = await greedy(rig)
    async with gateway(engine, contents, cache_dir, chain=4, **options) as rig:
        await rig.swap(a_release_row(1, contents[0], chain=4))
        assert await greedy(rig) == sent


async def test_a_finish_that_raises_ends_in_an_engine_that_was_started_from_the_head(
    engine: Engine, contents: list[Path], cache_dir: Path
) -> None:
    async with gateway(engine, contents, cache_dir, chain=5) as rig:
        await rig.swap(a_release_row(1, contents[0], chain=5))
        swapped = await greedy(rig)
        await rig.swap(a_release_row(2, contents[1], chain=5))
        await rig.client.post(f"{engine.url}/collective_rpc", json={"method": "reef_break_finish"})
        head = a_release_row(3, contents[0], chain=5)
        await rig.publish(head)
        assert (await rig.failed(1, 180)).reason in (SwapFailure.ENGINE_FAILED, SwapFailure.DEADLINE)
        await rig.swapped_to(head, 600)
        routes = WeightRoutes(engine.url, rig.engines.session)
        assert (await routes.model_folder(10)).name == head["content_sha256"]
        assert await routes.version(10) == head["release_id"]
        assert await greedy(rig) == swapped  # hot or cold: the same weights
