"""Shell: GET /v1/models: the one model of a scenario, and the release that answers under its name."""

import orjson

from gateway.catalog import Catalog, require_serving
from gateway.exchange import Exchange
from schemas.errors import RejectedError

PREFIX = "/v1/models/"


class Models:
    """Lists what can be asked."""

    def __init__(self, *, catalog: Catalog, public_model: str, created_at_s: int) -> None:
        """Take the public name; `created_at_s` is seconds UTC, as OpenAI's clients expect one."""
        self._catalog = catalog
        self._public_model = public_model
        self._created_at_s = created_at_s

    async def listed(self, exchange: Exchange) -> None:
        """Answer GET /v1/models."""
        body = {"object": "list", "data": [self._card(exchange)]}
        await exchange.respond(200, orjson.dumps(body))

    async def shown(self, exchange: Exchange) -> None:
        """Answer GET /v1/models/NAME."""
        name = exchange.path.removeprefix(PREFIX)
        if name != self._public_model:
            raise RejectedError(
                f"expected the model {self._public_model!r}, got {name[:80]!r}: see GET /v1/models",
                reason="no_such_route",
            )
        await exchange.respond(200, orjson.dumps(self._card(exchange)))

    def _card(self, exchange: Exchange) -> dict[str, object]:
        state = self._catalog.resolve(exchange.head.scenario, exchange.grant)
        exchange.scenario = state.name
        serving = require_serving(state)
        exchange.release_id = serving.release_id
        return {
            "id": self._public_model,
            "object": "model",
            "created": self._created_at_s,
            "owned_by": "reef",
            "reef": {
                "scenario": state.name,
                "release_id": serving.release_id,
                "release_seq": serving.release_seq,
            },
        }
