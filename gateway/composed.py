"""Shell: the routes of the gateway put together from parts that exist already.

Not the composition root: deploy/one_gateway.py makes the parts from settings; tests make them by hand.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter

from gateway.app import Gateway, Routes
from gateway.auth import Token
from gateway.calls import Calls, CreateScenario, Recorder
from gateway.catalog import Catalog
from gateway.chat import PATH as CHAT_PATH
from gateway.chat import Chat
from gateway.completions import PATH as COMPLETIONS_PATH
from gateway.completions import Completions
from gateway.count_tokens import CountTokens
from gateway.engines import Engines
from gateway.gate import Gate
from gateway.health import Check, Health
from gateway.messages import Messages
from gateway.metrics import CallMetrics
from gateway.models import Models
from gateway.request_log import RequestLog
from gateway.responses import Responses
from gateway.rest import Lifespan, fastapi_app
from gateway.settings import CallSettings
from schemas.ids import ScenarioName


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a gateway is made of."""

    catalog: Catalog
    """Scenarios and what serves in them."""
    engines: Engines
    """Open already."""
    recorder: Recorder
    """Where events are kept."""
    metrics: CallMetrics
    """What the request path counts."""
    gate: Gate
    """Closed by swaps."""
    health: Health
    """What /healthz, /readyz and /metrics say."""
    tokens: Sequence[Token]
    """Empty: everybody may do everything."""
    settings: CallSettings
    """Limits and defaults of calls."""
    log: RequestLog
    """Writes the canonical line."""
    routers: Sequence[APIRouter] = ()
    """Everything under /reef."""
    create: CreateScenario | None = None
    """Makes scenarios that calls name; None: an unknown name is refused."""
    lifespan: Lifespan | None = None
    """Runs while the server does."""


def gateway_app(parts: Parts) -> Gateway:
    """Put the routes together."""
    calls = Calls(
        catalog=parts.catalog,
        engines=parts.engines,
        recorder=parts.recorder,
        metrics=parts.metrics,
        gate=parts.gate,
        settings=parts.settings,
        create=parts.create,
    )
    counts = CountTokens(
        catalog=parts.catalog, engines=parts.engines, body_bytes_max=parts.settings.body_bytes_max
    )
    models = Models(
        catalog=parts.catalog,
        public_model=parts.settings.public_model,
        created_at_s=time.time_ns() // 1_000_000_000,
    )
    rest = fastapi_app(parts.lifespan)
    for router in parts.routers:
        rest.include_router(router)
    routes: Routes = {
        CHAT_PATH: {"POST": calls.handler(Chat())},
        COMPLETIONS_PATH: {"POST": calls.handler(Completions())},
        "/v1/messages": {"POST": calls.handler(Messages())},
        "/v1/responses": {"POST": calls.handler(Responses())},
        "/v1/messages/count_tokens": {"POST": counts.answer},
        "/v1/models": {"GET": models.listed},
        f"/v1/models/{parts.settings.public_model}": {"GET": models.shown},
        "/healthz": {"GET": parts.health.healthz},
        "/readyz": {"GET": parts.health.readyz},
        "/metrics": {"GET": parts.health.metrics},
    }
    return Gateway(routes=routes, rest=rest, tokens=parts.tokens, metrics=parts.metrics, log=parts.log)


def own_checks(
    catalog: Catalog, engines: Engines, *, required: Sequence[ScenarioName] | None = None
) -> dict[str, Check]:
    """Look at the engines and at what serves: in the required scenarios, or in all that are known."""

    async def are_up() -> str | None:
        if await engines.are_ready():
            return None
        return "expected every engine to take calls, got one that does not yet: see its log"

    async def serve() -> str | None:
        names = catalog.names() if required is None else required
        missing = [name for name in names if catalog.add(name).serving is None]
        if not missing:
            return None
        return f"expected a release of every scenario, got none of {', '.join(missing)}: start `reef release`"

    return {"engine": are_up, "release": serve}
