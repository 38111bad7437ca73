"""How long swaps pause an engine under load, and whether memory is flat: `python -m tests.bench.bench_swap`.

Prints one JSON line. Not a test: what it shows depends on the machine, so ratios to a quiet one say little.
"""

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from deploy.embedded.engine import Engine, EngineOptions
from deploy.embedded.engine_environment import engine_python, find_device
from deploy.ports import free_port
from deploy.process_record import session_of
from deploy.settings import read_cache_dir
from schemas.events import ModelSwapped
from tests.swap_load import Load, other_weights, users
from tests.swap_rig import SCENARIO, a_release_row, running_swaps, until

WARM_SWAPS = 10
"""Memory is judged after them: by then every page of the KV cache was touched."""


def main() -> None:
    """Start an engine, swap it under load, and say how that went."""
    parser = argparse.ArgumentParser(description="measure swaps under load")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--swaps", type=int, default=30)
    parser.add_argument("--transport", choices=("gloo", "folder", "nccl"), default="gloo")
    parser.add_argument("--streams", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument(
        "--cache-blocks",
        type=int,
        default=64,
        help="of the KV cache: few are soon all touched",
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engine is ended, too
    with tempfile.TemporaryDirectory(prefix="reef-bench-swap-") as name:
        root, cache_dir = Path(name), read_cache_dir()
        options = EngineOptions(
            state_dir=root,
            cache_dir=cache_dir,
            port=free_port(),
            model=arguments.model,
            device=find_device(),
            extra_arguments=("--num-gpu-blocks-override", str(arguments.cache_blocks)),
        )
        engine = Engine(options)
        engine.prepare()
        try:
            engine.start()
            engine.wait_ready()
            found = asyncio.run(_measured(engine, root, arguments))
        finally:
            engine.stop()
    sys.stdout.write(json.dumps(found) + "\n")


async def _measured(engine: Engine, root: Path, arguments: argparse.Namespace) -> dict[str, object]:
    base = Path(engine.model.source)
    contents = [other_weights(base, root / f"content-{n}", seed=n, spread=0.01) for n in (1, 2)]
    python = str(engine_python(find_device(), read_cache_dir()))
    is_sent = arguments.transport != "folder"
    async with running_swaps(
        [engine.url],
        root,
        rows={SCENARIO: [a_release_row(0, base)]},
        base_folder=base,
        base_model=engine.model.name,
        sender_command=(python, "-m", "reef_engine.sender") if is_sent else None,
        transport=arguments.transport,
        deadline_s=300.0,
    ) as rig:
        await until(lambda: rig.engines.engines[0].is_admitted, 120)
        swaps, memory_mib, swapping = list[ModelSwapped](), list[int](), list[tuple[float, float]]()
        async with users(
            rig, num_streaming=arguments.streams, num_plain=2, max_tokens=arguments.tokens
        ) as load:
            await until(lambda: rig.engines.engines[0].num_in_flight >= arguments.streams + 2, 600)
            await asyncio.sleep(5)  # past their prompts
            for number in range(1, arguments.swaps + 1):
                began_s = asyncio.get_running_loop().time()
                swaps.append(await rig.swap(a_release_row(number, contents[number % 2]), 600))
                swapping.append((began_s, asyncio.get_running_loop().time()))
                memory_mib.append(_memory_mib(engine))
                await asyncio.sleep(1)
        paused = [(end - swap.pause_ms / 1e3, end) for (_, end), swap in zip(swapping, swaps, strict=True)]
        return _said(swaps, memory_mib, load) | _latencies(load, paused)


def _memory_mib(engine: Engine) -> int:
    """Of the engine's processes together."""
    assert engine.daemon.pid is not None
    total = 0
    for process, _ in session_of(engine.daemon.pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total // 2**20


def _latencies(load: Load, paused: Sequence[tuple[float, float]]) -> dict[str, object]:
    """Seconds that calls took: those in flight while an engine paused, and those that saw no pause."""

    def saw_one(call: tuple[float, float]) -> bool:
        return any(call[0] < end and begin < call[1] for begin, end in paused)

    found = {}
    for name, is_wanted in (("in_flight_s", True), ("others_s", False)):
        took = sorted(end - begin for begin, end in load.took if saw_one((begin, end)) is is_wanted)
        if took:
            found[name] = {
                "num": len(took),
                "p50": round(statistics.median(took), 2),
                "p99": round(took[min(len(took) - 1, int(0.99 * len(took)))], 2),
            }
    return dict(found)


def _slope(values: Sequence[int]) -> float | None:
    return None if len(values) < 2 else round(statistics.linear_regression(range(len(values)), values)[0], 2)


def _said(swaps: Sequence[ModelSwapped], memory_mib: Sequence[int], load: Load) -> dict[str, object]:
    def spread(values: Sequence[float]) -> dict[str, float]:
        ordered = sorted(values)
        return {
            "p50": round(statistics.median(ordered), 1),
            "max": round(ordered[-1], 1),
        }

    return {
        "num_swaps": len(swaps),
        "num_bytes": swaps[-1].num_bytes,
        "stage_ms": spread([one.stage_ms for one in swaps]),
        "pause_ms": spread([one.pause_ms for one in swaps]),
        "max_stream_gap_ms": spread([one.max_stream_gap_ms for one in swaps]),
        "total_ms": spread([one.total_ms for one in swaps]),
        "memory_mib": {
            "third": memory_mib[min(2, len(memory_mib) - 1)],
            "tenth": memory_mib[min(WARM_SWAPS, len(memory_mib)) - 1],
            "last": memory_mib[-1],
            "a_swap": _slope(memory_mib[WARM_SWAPS:]),
        },
        "num_streams": load.num_streams,
        "num_plain": load.num_whole,
        "num_failed": len(load.failures),
    }


if __name__ == "__main__":
    main()
