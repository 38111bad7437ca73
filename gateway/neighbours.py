"""Shell: one short question to the other services on this machine: what their metrics say.

Not health: a service that runs elsewhere does not answer here, and all may be well.
"""

import asyncio
from collections.abc import Mapping

import aiohttp

ASK_S_MAX = 1.0
"""A status is answered without those who take longer."""
TEXT_BYTES_MAX = 4 * 1024 * 1024
"""Of one service's metrics."""
CHUNK_BYTES = 64 * 1024
LOOPBACK = "127.0.0.1"


async def metrics_texts(ports: Mapping[str, int]) -> Mapping[str, str | None]:
    """Ask all at once, by name; None for those that do not answer in time."""
    timeout = aiohttp.ClientTimeout(total=ASK_S_MAX)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        texts = await asyncio.gather(*(_text(session, port) for port in ports.values()))
    return dict(zip(ports, texts, strict=True))


async def _text(session: aiohttp.ClientSession, port: int) -> str | None:
    try:
        async with session.get(f"http://{LOOPBACK}:{port}/metrics") as answer:
            if answer.status != 200:
                return None
            text = bytearray()
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                text += chunk
                if len(text) > TEXT_BYTES_MAX:
                    return None
            return text.decode(errors="replace")
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
