"""Shell: what an append to the outbox costs: `python -m tests.bench.bench_outbox`.

Nothing is shipped meanwhile: the log is away. Prints one JSON line a case.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import orjson
import uvloop
from prometheus_client import CollectorRegistry

from gateway import outbox as outbox_module
from gateway.outbox import Outbox, OutboxOptions
from gateway.outbox_metrics import OutboxMetrics
from gateway.outbox_rows import Durability
from schemas.packed import JsonBytes
from tests.builders import an_inference_completed
from tests.fakes import MemoryBlobs, MemoryLog

NUM_APPENDS = 10_000
BODY_BYTES = 10_000


async def measure(durability: Durability, num_clients: int, num_appends: int) -> dict[str, object]:
    """Append from so many clients at once, each waiting for its answer."""
    log = MemoryLog()
    log.is_up = False
    call = an_inference_completed(request=JsonBytes(b'"' + os.urandom(BODY_BYTES // 2).hex().encode() + b'"'))
    latencies_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        options = OutboxOptions(folder=Path(folder), num_partitions=8, durability=durability)
        metrics = OutboxMetrics(CollectorRegistry())
        async with Outbox(
            options, open_producer=log.open_producer, blobs=MemoryBlobs(), metrics=metrics
        ) as outbox:

            async def client() -> None:
                for _ in range(num_appends // num_clients):
                    await asyncio.sleep(0.002 if num_clients == 1 else 0)
                    started = time.perf_counter()
                    await outbox.append(call)
                    latencies_s.append(time.perf_counter() - started)

            started = time.perf_counter()
            await asyncio.gather(*[client() for _ in range(num_clients)])
            elapsed_s = time.perf_counter() - started
    latencies_s.sort()
    return {
        "durability": durability,
        "clients": num_clients,
        "appends_per_s": round(len(latencies_s) / elapsed_s),
        "p50_ms": round(1e3 * latencies_s[len(latencies_s) // 2], 3),
        "p99_ms": round(1e3 * latencies_s[int(0.99 * len(latencies_s))], 3),
    }


async def main() -> None:
    """Measure all cases."""
    outbox_module.DRAIN_S_MAX = 0.0
    cases: tuple[tuple[Durability, int, int], ...] = (
        ("process", 1, NUM_APPENDS),
        ("process", 64, NUM_APPENDS),
        ("disk", 1, NUM_APPENDS // 10),
        ("disk", 64, NUM_APPENDS),
    )
    for durability, num_clients, num_appends in cases:
        result = await measure(durability, num_clients, num_appends)
        sys.stdout.write(orjson.dumps(result).decode() + "\n")


if __name__ == "__main__":
    uvloop.run(main())
