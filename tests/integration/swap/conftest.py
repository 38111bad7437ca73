"""Fixtures: folders of releases, and a scripted engine with weight routes."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_upstream import ScriptedUpstream
from tests.scripted_weights import ScriptedWeights


@dataclass(slots=True, kw_only=True)
class ScriptedEngine:
    """An engine in a thread of its own, and its keeper."""

    upstream: ScriptedUpstream
    weights: ScriptedWeights
    loop: asyncio.AbstractEventLoop
    kept: str = ""
    num_restarts: int = 0

    async def run(self, work: Any) -> None:
        """Do something in the engine's own loop."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def keep(self, folder: str) -> None:
        """Start from this folder the next time."""
        self.kept = folder

    async def restart(self) -> None:
        """End, and start from the folder that is kept."""
        self.num_restarts += 1
        self.weights.fails.clear()
        self.weights.hangs.clear()
        await self.run(self.upstream.stop())
        await self.run(self._start_again())

    async def die_and_come_back(self, folder: str) -> None:
        """End, and be started by somebody else, from another folder."""
        self.kept = folder
        await self.restart()

    async def _start_again(self) -> None:
        self.weights.restart(self.kept)
        await self.upstream.start()


@pytest.fixture
def engine(base: Path) -> Iterator[ScriptedEngine]:
    """An engine that was started from the base model."""
    weights = ScriptedWeights(folder=str(base))
    upstream, loop = ScriptedUpstream(weights=weights), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted-engine", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(upstream.start(), loop).result(10)
        yield ScriptedEngine(upstream=upstream, weights=weights, loop=loop)
    finally:
        asyncio.run_coroutine_threadsafe(upstream.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base model's folder."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"base")
    return folder


@pytest.fixture
def releases(tmp_path: Path) -> list[Path]:
    """Folders of the weights of releases 1, 2, 3; number 0 is the base's."""
    folders = [tmp_path / f"release-{number}" for number in range(4)]
    for folder in folders:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(folder.name.encode())
    return folders
