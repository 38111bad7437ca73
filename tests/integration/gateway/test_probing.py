"""What is known of an engine's logprobs: asked again until it is known, and anew when the engine was away."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway import engines
from gateway.engines import Engines
from gateway.probe import RAW_LOGPROBS, UNKNOWN_LOGPROBS
from gateway.record import PROCESSED
from tests.swap_rig import until

LOGPROBS = (-0.5, -1.5, -2.5, -3.5, -4.5)


class ProbedEngine:
    """Answers what a probe asks, by the mode that it is in."""

    def __init__(self) -> None:
        self.mode = UNKNOWN_LOGPROBS
        self.is_well = True
        self.num_probes = 0
        self.app = web.Application()
        self.app.router.add_get("/health", self.health)
        self.app.router.add_get("/v1/models", self.models)
        self.app.router.add_post("/v1/chat/completions", self.answer)

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.is_well else 503)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "probed"}]})

    async def answer(self, request: web.Request) -> web.Response:
        self.num_probes += 1
        if self.mode == UNKNOWN_LOGPROBS:
            return web.Response(status=503)
        scale = (await request.json())["temperature"] if self.mode == PROCESSED else 1.0
        tops = [{"logprob": logprob / scale} for logprob in LOGPROBS]
        return web.json_response({"choices": [{"logprobs": {"content": [{"top_logprobs": tops}]}}]})


@pytest.fixture
async def probed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ProbedEngine, str]]:
    """An engine, and its address."""
    for name in ("WATCH_S", "LOOK_S", "PROBE_REST_FIRST_S"):
        monkeypatch.setattr(engines, name, 0.02)
    engine = ProbedEngine()
    async with TestServer(engine.app) as server:
        yield engine, str(server.make_url("")).rstrip("/")


async def test_an_engine_that_could_not_be_probed_is_probed_again(probed: tuple[ProbedEngine, str]) -> None:
    engine, url = probed
    async with Engines([url], wait_s=0.0) as found:
        await until(lambda: engine.num_probes >= 2)
        assert found.engines[0].logprobs_mode == UNKNOWN_LOGPROBS
        engine.mode = PROCESSED
        await until(lambda: found.engines[0].logprobs_mode == PROCESSED)


async def test_an_engine_that_comes_back_with_other_flags_is_known_by_them(
    probed: tuple[ProbedEngine, str],
) -> None:
    engine, url = probed
    engine.mode = PROCESSED
    async with Engines([url], wait_s=0.0, guard=lambda: None) as found:
        await until(lambda: found.engines[0].logprobs_mode == PROCESSED)
        engine.is_well = False
        await until(lambda: found.engines[0].is_down)
        assert found.engines[0].logprobs_mode == UNKNOWN_LOGPROBS
        engine.mode, engine.is_well = RAW_LOGPROBS, True
        await until(lambda: found.engines[0].logprobs_mode == RAW_LOGPROBS)
