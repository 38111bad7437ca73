"""Shell: an engine's routes that change its weights, each with a deadline; they have no token, only loopback.

Not the order in which they are used: gateway/swap.py. Errors say by their reason what a swap makes of them:
`engine_not_swappable`, `engine_failed`, `deadline`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
import orjson

from schemas.errors import ReefError, RejectedError, UnavailableError

UNNAMED = "default"
"""The version of an engine that was told none."""
NO_SUCH_ROUTE = 404
Phase = Literal["idle", "staging", "ready", "failed", "broken", "absent"]
"""How far a worker's staging is; `broken` after a finish that raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStaging:
    """What one worker says of its staging."""

    phase: Phase
    """How far it is."""
    swap_id: str
    """Of which swap."""
    detail: str
    """Why it failed."""
    num_bytes: int
    """Weights that came so far."""
    is_open: bool
    """Whether vLLM holds a session open."""


class WeightRoutes:
    """The weight routes of one engine."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        """Take the address, and the session that asks what is no client's call."""
        self.url, self._session = url, session

    async def num_workers(self, deadline_s: float) -> int:
        """Count the processes that hold a part of the model."""
        return int((await self._get("/get_world_size", deadline_s))["world_size"])

    async def version(self, deadline_s: float) -> str:
        """Say which release the weights are of; UNNAMED when nobody said."""
        return str((await self._get("/weight_info", deadline_s))["weight_version"])

    async def model_folder(self, deadline_s: float) -> Path:
        """Say what the engine was started from; after a swap that is no longer what it serves."""
        models = (await self._get("/v1/models", deadline_s))["data"]
        return Path(next((str(model["root"]) for model in models if model.get("root")), ""))

    async def models(self, deadline_s: float) -> frozenset[str]:
        """Name what can be asked: the base model and every adapter."""
        return frozenset(str(model["id"]) for model in (await self._get("/v1/models", deadline_s))["data"])

    async def is_paused(self, deadline_s: float) -> bool:
        """Whether it generates nothing."""
        return bool((await self._get("/is_paused", deadline_s))["is_paused"])

    async def staging(self, deadline_s: float) -> tuple[WorkerStaging, ...]:
        """Ask every worker how far it is."""
        body = {"method": "reef_staging", "timeout": deadline_s}
        answer = await self._post("/collective_rpc", body, deadline_s)
        return tuple(WorkerStaging(**worker) for worker in answer["results"])

    async def begin(self, order: Mapping[str, Any], deadline_s: float) -> None:
        """Open a session and begin to stage."""
        await self._post("/start_weight_update", None, deadline_s)
        await self._post("/update_weights", {"update_info": dict(order)}, deadline_s)

    async def abandon(self, deadline_s: float) -> None:
        """Close the session; the route has to fail for that, so a failure is not looked at."""
        order = {"update_info": {"swap_id": "", "is_abandoned": True}}
        await self._exchange("POST", "/update_weights", order, deadline_s)

    async def pause(self, deadline_s: float) -> None:
        """Freeze what runs; its KV stays (WEIGHTS 5)."""
        await self._post("/pause?mode=keep&clear_cache=false", None, deadline_s)

    async def finish(self, version: str, deadline_s: float) -> None:
        """Exchange the weights and name them."""
        await self._post("/finish_weight_update", {"weight_version": version}, deadline_s)

    async def resume(self, deadline_s: float) -> None:
        """Let what was frozen go on."""
        await self._post("/resume", None, deadline_s)

    async def name(self, version: str, deadline_s: float) -> None:
        """Say which release the engine was started from."""
        await self._post("/update_weight_version", {"new_version": version}, deadline_s)

    async def load_adapter(self, name: str, folder: Path, deadline_s: float) -> None:
        """Load an adapter under a name of its own."""
        body = {"lora_name": name, "lora_path": str(folder)}
        await self._post("/v1/load_lora_adapter", body, deadline_s)

    async def unload_adapter(self, name: str, deadline_s: float) -> None:
        """Forget an adapter that nobody asks any more."""
        await self._post("/v1/unload_lora_adapter", {"lora_name": name}, deadline_s)

    async def _get(self, path: str, deadline_s: float) -> Any:
        return self._read(path, *await self._exchange("GET", path, None, deadline_s))

    async def _post(self, path: str, body: Mapping[str, Any] | None, deadline_s: float) -> Any:
        return self._read(path, *await self._exchange("POST", path, body, deadline_s))

    async def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None, deadline_s: float
    ) -> tuple[int, bytes]:
        data = None if body is None else orjson.dumps(body)
        headers = {"Connection": "close"}  # the engine closes a connection on which it failed, a moment later
        headers |= {} if body is None else {"Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._session.request(
                    method, self.url + path, data=data, headers=headers, timeout=timeout
                ) as answer,
            ):
                return answer.status, await answer.read()
        except TimeoutError as error:
            message = f"expected {path} of {self.url} to answer within {deadline_s:.1f} s, got nothing"
            raise UnavailableError(f"{message}: see the engine's log", reason="deadline") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failed(path, type(error).__name__) from error

    def _read(self, path: str, status: int, raw: bytes) -> Any:
        if status == NO_SUCH_ROUTE:
            raise RejectedError(
                f"expected {path} of {self.url}, got none: start the engine as docs/stack.md says",
                reason="engine_not_swappable",
            )
        if status != 200:
            raise self._failed(path, f"status {status}: {raw[:300].decode(errors='replace')}")
        try:
            return orjson.loads(raw) if raw.startswith(b"{") else {}
        except orjson.JSONDecodeError as error:
            raise self._failed(path, "no JSON") from error

    def _failed(self, path: str, got: str) -> ReefError:
        return UnavailableError(
            f"expected {path} of {self.url} to succeed, got {got}: see the engine's log",
            reason="engine_failed",
        )
