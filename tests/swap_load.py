"""Shell: users of a gateway while it swaps, and weights that differ: for the tests and the measurement."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import torch
from safetensors.torch import load_file, save_file

from tests.swap_rig import SwapRig

PROMPTS = ("One, two, three,", "The capital of France", "Once upon a time")


def other_weights(base: Path, folder: Path, *, seed: int, spread: float = 0.5) -> Path:
    """Write a release's folder: the base model's weights, each moved by chance."""
    torch.manual_seed(seed)
    folder.mkdir(parents=True)
    moved = {}
    for name, tensor in load_file(base / "model.safetensors").items():
        factor = 1 + spread * torch.randn(tensor.shape) if tensor.ndim == 2 else torch.ones(())
        moved[name] = (tensor.float() * factor).to(tensor.dtype).contiguous()
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


async def greedy(rig: SwapRig) -> list[str]:
    """Ask for what is deterministic on an idle engine, one at a time."""
    answers = []
    for prompt in PROMPTS:
        body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
        answer = await rig.client.post("/v1/completions", json=body)
        answer.raise_for_status()
        answers.append(answer.json()["choices"][0]["text"])
    return answers


@dataclass(slots=True)
class Load:
    """What users saw."""

    num_streams: int = 0
    num_whole: int = 0
    failures: list[str] = field(default_factory=list)
    took: list[tuple[float, float]] = field(default_factory=list)
    """When each call began and ended, in the loop's seconds."""


@asynccontextmanager
async def users(
    rig: SwapRig, *, num_streaming: int, num_plain: int, max_tokens: int = 96
) -> AsyncIterator[Load]:
    """Let users ask in closed loops; leaving waits for their last answers."""
    load, stop = Load(), asyncio.Event()
    asking = [_stream(rig, load, stop, n, max_tokens) for n in range(num_streaming)]
    asking += [_plain(rig, load, stop, n, max_tokens) for n in range(num_plain)]
    tasks = [asyncio.create_task(_counted(one, load)) for one in asking]
    try:
        yield load
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def _counted(asking: Coroutine[Any, Any, None], load: Load) -> None:
    """A user whose connection breaks is a failure, and asks no more."""
    try:
        await asking
    except httpx.HTTPError as error:
        load.failures.append(repr(error))


def _body(user: int, number: int, max_tokens: int) -> dict[str, Any]:
    text = f"User {user} asks question {number}."
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 1.0,
        "ignore_eos": True,
    }


async def _stream(rig: SwapRig, load: Load, stop: asyncio.Event, user: int, max_tokens: int) -> None:
    number = 0
    while not stop.is_set():
        number, began_s = number + 1, _now_s()
        body = {**_body(user, number, max_tokens), "stream": True}
        async with rig.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
        if answer.status_code != 200 or not lines or lines[-1] != "data: [DONE]":
            load.failures.append(f"stream: {answer.status_code} {lines[-1:]}")
        load.num_streams += 1
        load.took.append((began_s, _now_s()))


async def _plain(rig: SwapRig, load: Load, stop: asyncio.Event, user: int, max_tokens: int) -> None:
    number = 0
    while not stop.is_set():
        number, began_s = number + 1, _now_s()
        answer = await rig.client.post("/v1/chat/completions", json=_body(100 + user, number, max_tokens))
        found = orjson.loads(answer.content)
        if answer.status_code != 200 or found["usage"]["completion_tokens"] != max_tokens:
            load.failures.append(f"plain: {answer.status_code} {str(found)[:200]}")
        load.num_whole += 1
        load.took.append((began_s, _now_s()))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
