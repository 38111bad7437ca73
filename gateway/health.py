"""Shell: whether the gateway lives, whether it may be sent traffic, and what it counted."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from gateway.exchange import Exchange

Check = Callable[[], Awaitable[str | None]]
"""Says what is wrong; None when nothing is."""
CHECK_S_MAX = 5.0


class Health:
    """Answers /healthz, /readyz and /metrics."""

    def __init__(self, *, checks: Mapping[str, Check], registry: CollectorRegistry) -> None:
        """Take a check by name for each thing that must be in order."""
        self._checks = checks
        self._registry = registry

    async def healthz(self, exchange: Exchange) -> None:
        """Say that the process answers."""
        await exchange.respond(200, b'{"ok":true}')

    async def readyz(self, exchange: Exchange) -> None:
        """Say whether calls can be answered, and what is wrong if not."""
        problems = await self.problems()
        body = {"ok": not problems, "problems": problems}
        await exchange.respond(503 if problems else 200, orjson.dumps(body))

    async def problems(self) -> dict[str, str]:
        """Run every check at once; give what is wrong, by name."""
        found = await asyncio.gather(*(_checked(check) for check in self._checks.values()))
        return {name: said for name, said in zip(self._checks, found, strict=True) if said is not None}

    async def metrics(self, exchange: Exchange) -> None:
        """Give everything counted, in Prometheus' text form."""
        text = await asyncio.to_thread(generate_latest, self._registry)
        await exchange.respond_text(200, text)


async def _checked(check: Check) -> str | None:
    try:
        async with asyncio.timeout(CHECK_S_MAX):
            return await check()
    except TimeoutError:
        return f"expected an answer within {CHECK_S_MAX:g} s, got none"
