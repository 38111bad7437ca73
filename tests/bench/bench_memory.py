"""Shell: whether a gateway's memory stays flat: `python -m tests.bench.bench_memory [REQUESTS] [ABANDONED]`.

A gateway in a process of its own answers calls from 32 connections, then streams that are abandoned half way.
Prints one JSON line a stage and fails if memory grew by more than GROWTH_MIB_MAX after the warm-up.
"""

import asyncio
import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
import orjson
import psutil

from gateway.calls import Recorder
from schemas.codec import encode
from schemas.events import Event
from tests.gateway_rig import running_gateway, with_settings
from tests.scripted_upstream import Script, running_upstream, words

NUM_REQUESTS, NUM_ABANDONED = 100_000, 1_000
NUM_CONNECTIONS = 32
NUM_STAGES = 10
GROWTH_MIB_MAX = 16.0
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": "Hello " * 200}]}


class CountingRecorder:
    """Encodes events and forgets them."""

    def __init__(self) -> None:
        """Begin at none."""
        self.num_events = 0

    async def append(self, *events: Event) -> None:
        """Count."""
        for event in events:
            assert encode(event)
            self.num_events += 1

    def refuse_when_full(self) -> None:
        """Never."""


def run_gateway(engine_url: str, told: Connection) -> None:
    """Run a gateway until told to stop."""
    recorder: Recorder = CountingRecorder()
    with running_gateway([engine_url], recorder=recorder, settings=with_settings(timeout_s=60.0)) as rig:
        told.send(rig.url)
        told.recv()
        assert isinstance(recorder, CountingRecorder)
        told.send(recorder.num_events)


async def answered(session: aiohttp.ClientSession, url: str, number: int) -> None:
    """Make one call in four a stream."""
    async with session.post(url + CHAT, json={**BODY, "stream": number % 4 == 0}) as answer:
        assert answer.status == 200
        await answer.read()


async def abandoned(session: aiohttp.ClientSession, url: str, number: int) -> None:
    """Leave a stream after its first piece."""
    async with session.post(url + CHAT, json={**BODY, "stream": True}) as answer:
        await answer.content.readany()
        answer.close()


Act = Callable[[aiohttp.ClientSession, str, int], Any]


async def play(url: str, act: Act, num_times: int) -> None:
    """Do something so many times from all connections."""
    numbers = iter(range(num_times))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            await act(session, url, number)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(work(session) for _ in range(NUM_CONNECTIONS)))


def main(num_requests: int, num_abandoned: int) -> int:
    """Play all stages; 1 if memory grew."""
    script = Script(choices=(words("a few words of an answer"),))
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    with running_upstream(script) as upstream:
        process = multiprocessing.get_context("spawn").Process(
            target=run_gateway, args=(upstream.url, theirs), daemon=True
        )
        process.start()
        url: str = ours.recv()
        memory = psutil.Process(process.pid)
        mib: list[float] = []

        def look(stage: str) -> None:
            mib.append(memory.memory_info().rss / 1_048_576)
            sys.stdout.write(orjson.dumps({"stage": stage, "rss_mib": round(mib[-1], 1)}).decode() + "\n")
            sys.stdout.flush()

        for stage in range(NUM_STAGES):
            asyncio.run(play(url, answered, num_requests // NUM_STAGES))
            look(f"{(stage + 1) * num_requests // NUM_STAGES} calls")
        upstream.script = Script(choices=(words("a b c d e f"),), chunk_delay_s=0.01, stalls_after=3)
        upstream.asked.clear()
        asyncio.run(play(url, abandoned, num_abandoned))
        look(f"{num_abandoned} abandoned streams")
        upstream.script = script
        asyncio.run(play(url, answered, num_requests // NUM_STAGES))
        look("afterwards")
        ours.send("stop")
        num_events: int = ours.recv()
        process.join(30)
    grown_mib = mib[-1] - mib[1]
    result = {"grown_mib": round(grown_mib, 1), "allowed_mib": GROWTH_MIB_MAX, "events": num_events}
    sys.stdout.write(orjson.dumps(result).decode() + "\n")
    return 1 if grown_mib > GROWTH_MIB_MAX else 0


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(given or (NUM_REQUESTS, NUM_ABANDONED))))
