"""Shell: POST /v1/messages/count_tokens: the engine renders the question and counts. Nothing is recorded."""

import orjson

from gateway.catalog import Catalog, require_serving
from gateway.engines import Engines
from gateway.exchange import Exchange, parse_object
from gateway.messages import chat_of
from schemas.errors import UnavailableError
from schemas.ids import Route

NO_ROUTE = Route("0" * 16)
RENDERED = ("messages", "tools", "chat_template_kwargs")
"""What a prompt is made of."""


class CountTokens:
    """Counts a question's tokens."""

    def __init__(self, *, catalog: Catalog, engines: Engines, body_bytes_max: int) -> None:
        """Take what a count passes through."""
        self._catalog = catalog
        self._engines = engines
        self._body_bytes_max = body_bytes_max

    async def answer(self, exchange: Exchange) -> None:
        """Answer one question."""
        state = self._catalog.resolve(exchange.head.scenario, exchange.grant)
        exchange.scenario = state.name
        serving = require_serving(state)
        chat = chat_of(parse_object(await exchange.body(self._body_bytes_max)))
        asked = {name: chat[name] for name in RENDERED if name in chat}
        asked |= {"model": serving.engine_model, "add_generation_prompt": True}
        answer = await self._engines.ask_aside(self._engines.choose(NO_ROUTE), "/tokenize", asked)
        count = answer.get("count")
        if not isinstance(count, int):
            raise UnavailableError(
                "expected the engine to count tokens, got another answer: see its version",
                reason="engine_nonsense",
            )
        await exchange.respond(200, orjson.dumps({"input_tokens": count}))
