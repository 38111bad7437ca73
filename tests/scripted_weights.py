"""Shell: the weight routes of a scripted engine: they keep vLLM's rules of sessions, and fail when told to.

tests/contract/test_weight_routes.py runs the same assertions on them and on the real engine.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from tests.scripted_upstream import MODEL

Failing = Literal["start", "stage", "pause", "finish", "version", "resume", "load"]


@dataclass(slots=True)
class ScriptedWeights:
    """What an engine holds, and the mishaps it will have."""

    folder: str = "/models/base"
    """What it was started from."""
    version: str = "default"
    num_workers: int = 1
    fails: set[Failing] = field(default_factory=set)
    """Steps that answer 500 (`version`: that keep the old one)."""
    hangs: set[Failing] = field(default_factory=set)
    """Steps that answer nothing."""
    stages_slowly: bool = False
    """Whether a staging stays under way."""
    adapters: set[str] = field(default_factory=set)
    orders: list[dict[str, Any]] = field(default_factory=list)
    """Every order of staging."""
    calls: list[str] = field(default_factory=list)
    """Every step, in order."""
    phase: str = "idle"
    is_open: bool = False
    running: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while paused: streams stand still."""

    def __post_init__(self) -> None:
        self.running.set()

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get("/get_world_size", self._world)
        app.router.add_get("/weight_info", self._info)
        app.router.add_get("/is_paused", self._is_paused)
        for name in ("collective_rpc", "start_weight_update", "update_weights", "finish_weight_update"):
            app.router.add_post(f"/{name}", getattr(self, f"_{name}"))
        for name in ("pause", "resume", "update_weight_version"):
            app.router.add_post(f"/{name}", getattr(self, f"_{name}"))
        app.router.add_post("/v1/load_lora_adapter", self._load)
        app.router.add_post("/v1/unload_lora_adapter", self._unload)

    def models(self) -> list[dict[str, Any]]:
        """What /v1/models lists."""
        base = {"id": MODEL, "object": "model", "root": self.folder}
        return [base, *({"id": name, "object": "model", "parent": MODEL} for name in sorted(self.adapters))]

    def restart(self, folder: str) -> None:
        """Be another process, started from a folder."""
        self.folder, self.version, self.phase, self.is_open = folder, "default", "idle", False
        self.adapters.clear()
        self.running.set()

    async def _step(self, step: Failing) -> None:
        self.calls.append(step)
        if step in self.hangs:
            await asyncio.sleep(3_600)
        if step in self.fails:
            raise web.HTTPInternalServerError(text=f"scripted failure of {step}")

    async def _world(self, request: web.Request) -> web.Response:
        return web.json_response({"world_size": self.num_workers})

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.version})

    async def _is_paused(self, request: web.Request) -> web.Response:
        return web.json_response({"is_paused": not self.running.is_set()})

    async def _collective_rpc(self, request: web.Request) -> web.Response:
        assert (await request.json())["method"] == "reef_staging"
        swap_id = self.orders[-1]["swap_id"] if self.orders else ""
        detail = "a scripted mishap" if self.phase == "failed" else ""
        worker = {
            "phase": self.phase,
            "swap_id": swap_id,
            "detail": detail,
            "num_bytes": 7,
            "is_open": self.is_open,
        }
        return web.json_response({"results": [worker] * self.num_workers})

    async def _start_weight_update(self, request: web.Request) -> web.Response:
        await self._step("start")
        if self.is_open:
            raise web.HTTPInternalServerError(text="a weight update is already active")
        self.is_open, self.phase = True, "idle"
        return web.json_response({"message": "started"})

    async def _update_weights(self, request: web.Request) -> web.Response:
        order = (await request.json())["update_info"]
        if order.get("is_abandoned") or not self.is_open:
            self.is_open, self.phase = False, "idle"
            raise web.HTTPInternalServerError(text="closed as was asked")
        self.orders.append(order)
        await self._step("stage")
        self.phase = "staging" if self.stages_slowly else "ready"
        return web.json_response({"message": "updated"})

    async def _pause(self, request: web.Request) -> web.Response:
        assert dict(request.query) == {"mode": "keep", "clear_cache": "false"}
        await self._step("pause")
        self.running.clear()
        return web.json_response({"status": "paused"})

    async def _finish_weight_update(self, request: web.Request) -> web.Response:
        self.phase = "broken"
        await self._step("finish")
        if not self.is_open:
            raise web.HTTPInternalServerError(text="no session is open")
        self.is_open, self.phase = False, "idle"
        if "version" not in self.fails:
            self.version = (await request.json())["weight_version"]
        return web.json_response({"message": "finished"})

    async def _resume(self, request: web.Request) -> web.Response:
        await self._step("resume")
        self.running.set()
        return web.json_response({"status": "resumed"})

    async def _update_weight_version(self, request: web.Request) -> web.Response:
        self.version = (await request.json())["new_version"]
        return web.json_response({"success": True, "new_version": self.version})

    async def _load(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        await self._step("load")
        if name in self.adapters:
            raise web.HTTPBadRequest(text="loaded already")
        self.adapters.add(name)
        return web.Response(text="loaded")

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if name not in self.adapters:
            raise web.HTTPNotFound(text="no such adapter")
        self.adapters.remove(name)
        return web.Response(text="unloaded")
