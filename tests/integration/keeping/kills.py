"""Shell: a gateway under load that is killed again and again, and what its clients were answered."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from schemas.bus import KafkaAccess

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
RECEIPT = "x-reef-agent-record-id"
NUM_CLIENTS = 8
START_S_MAX = 120.0


async def receipts_over_kills(
    access: KafkaAccess, folder: Path, scenario: str, engine_url: str, num_kills: int
) -> list[str]:
    """Kill the gateway so often under load; give the receipts of all complete answers."""
    receipts: list[str] = []
    for number in range(num_kills):
        command = (sys.executable, "-m", "tests.integration.keeping.child")
        process = await asyncio.create_subprocess_exec(
            *(*command, access.bootstrap, str(folder), scenario, engine_url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        url = await _address(process)
        courier = psutil.Process(process.pid).children()
        num_wanted = len(receipts) + 20 + 17 * (number % 5)
        load = [asyncio.create_task(_call(url, scenario, n, receipts)) for n in range(NUM_CLIENTS)]
        async with asyncio.timeout(START_S_MAX):
            while len(receipts) < num_wanted:
                for ended in (task for task in load if task.done()):
                    ended.result()  # a wrong answer ends the test at once
                assert not all(task.done() for task in load), "every client lost its gateway before the kill"
                await asyncio.sleep(0.005)
        process.kill()
        await process.wait()
        await asyncio.gather(*load)
        await asyncio.to_thread(psutil.wait_procs, courier, timeout=60)
        assert not any(child.is_running() for child in courier), "the courier outlived its gateway"
    return receipts


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START_S_MAX):
        while not (line := (await process.stdout.readline()).decode()).startswith("at "):
            assert line, "the gateway ended before it served"
    return line.split()[1]


async def _call(url: str, scenario: str, client_number: int, receipts: list[str]) -> None:
    """Call until the gateway is gone, every other call a stream."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
        with suppress(httpx.HTTPError):
            while True:
                is_stream = len(receipts) % 2 == 0
                headers = {"x-reef-scenario": scenario, "x-reef-tag-session": f"client-{client_number}"}
                body = {**CHAT, "stream": is_stream}
                answer = await client.post("/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == 200, answer.text
                if not is_stream or answer.text.rstrip().endswith("data: [DONE]"):
                    receipts.append(answer.headers[RECEIPT])
