"""Shell: whether anything of the whole loop grows: `python -m tests.bench.bench_soak [MINUTES]`; `make soak`.

`reef serve` on the tiny model; users ask, report and ask again as fast as it answers, while batches are
trained, released and swapped in. Prints one JSON line for each program (memory of its own, all its processes)
and each folder (disk), with slopes after the first third. Fails when a program's memory went on growing, a
request failed, or nothing was released meanwhile. The chain, Kafka's log up to its retention and what is
written beside it (docs/operations.md) may grow. What streams remember grows until their windows are full, so
these are shorter than a soak here. A JVM takes its heap bit by bit, lakeFS its caches: they have ceilings.
"""

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, linear_regression
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import psutil

from tests.e2e.deployment import HEADERS, Deployment, served

MINUTES = 30.0
NUM_USERS = 8
LOOK_S = 15.0
GROWTH_MIB_MAX, GROWTH_SHARE_MAX = 16.0, 0.1
"""From the second third to the last; the larger of both is allowed."""
CEILINGS_MIB = {"kafka": 512.0 + 384.0, "lakefs": 512.0}
"""Its heap (-Xmx512m), and what a JVM has beside it; lakeFS's caches, which thousands of releases fill."""
WINDOWS = {
    "streams.join_window_s": 60,
    "streams.orphan_window_s": 60,
    "streams.dedup_window_s": 120,
    "streams.buffer_max_age_s": 120,
}
MIB = 1_048_576


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was measured, by name: seconds since the start and MiB."""

    memory: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    disk: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    num_calls: int = 0
    failures: list[str] = field(default_factory=list)


async def play(deployment: Deployment, seen: Seen, ends_s: float, *, number: int) -> None:
    """Ask, report at random, again and again."""
    chance, url = Random(number), str(deployment.http.base_url)
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(url, headers=HEADERS, timeout=timeout) as http:
        while time.monotonic() < ends_s:
            question = f"What is {chance.randrange(1000)} plus {chance.randrange(1000)}?"
            body = {
                "messages": [{"role": "user", "content": question}],
                "max_tokens": 8,
                "temperature": 1.0,
                "stream": chance.random() < 0.5,
            }
            try:
                async with http.post("/v1/chat/completions", json=body, raise_for_status=True) as answer:
                    await answer.read()
                    receipt = answer.headers["x-reef-agent-record-id"]
                report = {"references": [receipt], "score": chance.random()}
                async with http.post("/reef/report", json=report, raise_for_status=True):
                    seen.num_calls += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                seen.failures.append(repr(error)[:200])


async def watch(deployment: Deployment, seen: Seen, began_s: float, ends_s: float) -> None:
    """Look at every program and folder from time to time."""
    while time.monotonic() < ends_s:
        await asyncio.sleep(min(LOOK_S, max(0.0, ends_s - time.monotonic())))
        at_s = time.monotonic() - began_s
        for name, mib in (await asyncio.to_thread(memory_of, deployment.state_dir)).items():
            seen.memory[name].append((at_s, mib))
        for name, mib in (await asyncio.to_thread(disk_of, deployment.state_dir)).items():
            seen.disk[name].append((at_s, mib))


def memory_of(state_dir: Path) -> Mapping[str, float]:
    """MiB that each program's processes have for themselves."""
    found = {}
    for record in sorted((state_dir / "run").glob("*.json")):
        with suppress(OSError, ValueError, psutil.Error):
            leader = psutil.Process(json.loads(record.read_bytes())["session"])
            family = [leader, *leader.children(recursive=True)]
            found[record.stem] = sum(one.memory_full_info().uss for one in family) / MIB
    found.pop("supervisor", None)  # all the others are its children
    return found


def disk_of(state_dir: Path) -> Mapping[str, float]:
    """MiB in each folder."""
    return {folder.name: size_of(folder) / MIB for folder in state_dir.iterdir() if folder.is_dir()}


def size_of(folder: Path) -> int:
    """Bytes of all files; one that goes meanwhile counts as none."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            size += path.lstat().st_blocks * 512
    return size


def growth(points: Sequence[tuple[float, float]]) -> dict[str, float]:
    """How a figure went on after the first third, in MiB."""
    num = len(points)
    middle, last = list(points[num // 3 : 2 * num // 3]), list(points[2 * num // 3 :])
    slope = linear_regression(*zip(*(middle + last), strict=True)).slope
    return {
        "mib_warm": round(fmean(mib for _, mib in middle), 1),
        "mib_last": round(fmean(mib for _, mib in last), 1),
        "mib_per_hour": round(3_600 * slope, 2),
    }


def grows(name: str, found: Mapping[str, float]) -> bool:
    """Whether that is more than chance."""
    if name in CEILINGS_MIB:
        return found["mib_last"] > CEILINGS_MIB[name]
    allowed = max(GROWTH_MIB_MAX, GROWTH_SHARE_MAX * found["mib_warm"])
    return found["mib_last"] - found["mib_warm"] > allowed


async def soak(deployment: Deployment, minutes: float) -> Seen:
    """Play and watch."""
    seen, began_s = Seen(), time.monotonic()
    ends_s = began_s + 60 * minutes
    async with asyncio.TaskGroup() as group:
        for number in range(NUM_USERS):
            group.create_task(play(deployment, seen, ends_s, number=number))
        group.create_task(watch(deployment, seen, began_s, ends_s))
    return seen


def say(**what: Any) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(minutes: float) -> int:
    """Soak; 1 when something is wrong."""
    with TemporaryDirectory() as folder, served(Path(folder), WINDOWS) as deployment:
        seen = asyncio.run(soak(deployment, minutes))
        chain = deployment.releases()
    growing = []
    for name, points in sorted(seen.memory.items()):
        found = growth(points)
        growing += [name] if grows(name, found) else []
        say(program=name, **found)
    for name, points in sorted(seen.disk.items()):
        say(folder=name, **growth(points))
    assert all(newer["parent_release_id"] == older["release_id"] for newer, older in pairwise(chain))
    say(minutes=minutes, calls=seen.num_calls, failures=len(seen.failures), releases=len(chain))
    say(growing=growing, first_failures=seen.failures[:3])
    return 1 if growing or seen.failures or len(chain) < 2 else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if sys.argv[1:] else MINUTES))
