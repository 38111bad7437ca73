"""Adapters of the real engine: ten swapped in while others decode, without a pause, and without a trace."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from deploy.embedded.engine import Engine
from schemas.events import ArtifactKind, TrainingTarget
from tests.conftest import running_engine
from tests.swap_load import PROMPTS
from tests.swap_rig import SCENARIO, SwapRig, a_release_row, running_swaps, until
from trainers.export import ADAPTER_CONFIG, ADAPTER_FILE, ADAPTER_PREFIX, adapter_config
from trainers.model import Lora

pytestmark = pytest.mark.engine

NUM_SWAPS = 10
RANK = 8
NUM_TOKENS = 32
NEAR = 0.5
"""Two tokens whose log-probabilities are this near may change places under load (WEIGHTS 3)."""


@pytest.fixture(scope="module")
def engine(make_state_dir: Callable[[str], Path]) -> Iterator[Engine]:
    folder = make_state_dir("adapter-engine")
    with running_engine("smollm2-135m", folder, num_adapters=1, adapter_rank=RANK) as found:
        yield found


def an_adapter(base: Path, folder: Path, *, seed: int) -> Path:
    """Write an adapter by chance, strong enough to change what is said."""
    torch.manual_seed(seed)
    config = json.loads((base / "config.json").read_bytes())
    hidden, heads, kv_heads = (
        config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    sizes = {"q_proj": hidden, "v_proj": hidden // heads * kv_heads}
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for name, size in sizes.items():
            prefix = f"{ADAPTER_PREFIX}model.layers.{layer}.self_attn.{name}"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(RANK, hidden, dtype=torch.bfloat16) / hidden**0.5
            weights[f"{prefix}.lora_B.weight"] = torch.randn(size, RANK, dtype=torch.bfloat16) / 4
    folder.mkdir(parents=True)
    save_file(weights, folder / ADAPTER_FILE, metadata={"format": "pt"})
    (folder / ADAPTER_CONFIG).write_bytes(adapter_config(Lora(rank=RANK, alpha=RANK), sorted(sizes)))
    return folder


@asynccontextmanager
async def gateway(engine: Engine, root: Path) -> AsyncIterator[SwapRig]:
    base = Path(engine.model.source)
    async with running_swaps(
        [engine.url],
        root,
        rows={SCENARIO: [a_release_row(0, base)]},
        targets={SCENARIO: TrainingTarget.LORA},
        base_folder=base,
        base_model=engine.model.name,
        deadline_s=120.0,
    ) as rig:
        await until(lambda: rig.engines.engines[0].is_admitted, 120)
        yield rig


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was said, which release said it, and how sure it was of each token."""

    release_id: str
    tokens: list[str]
    best_two: list[list[float]]


async def ask(rig: SwapRig, prompt: str) -> Answer:
    body = {"prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True, "logprobs": 2}
    answer = await rig.client.post("/v1/completions", json=body)
    answer.raise_for_status()
    logprobs = answer.json()["choices"][0]["logprobs"]
    return Answer(
        release_id=answer.headers["x-reef-release-id"],
        tokens=logprobs["tokens"],
        best_two=[sorted(each.values(), reverse=True)[:2] for each in logprobs["top_logprobs"]],
    )


@dataclass(slots=True)
class Users:
    """Everyone asks one prompt again and again."""

    answers: list[tuple[str, Answer]] = field(default_factory=list)
    num_overtaken: int = 0
    """Answers during which another release began to serve."""

    async def go_on(self, rig: SwapRig, prompt: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            before = rig.serving_seq
            self.answers.append((prompt, await ask(rig, prompt)))
            self.num_overtaken += rig.serving_seq != before


def check_same(found: Answer, alone: Answer) -> None:
    """Require the tokens of an answer that had the engine for itself, up to a toss-up."""
    for number, (token, expected) in enumerate(zip(found.tokens, alone.tokens, strict=True)):
        if token != expected:
            best, second = alone.best_two[number]
            assert best - second <= NEAR, f"token {number}: {token!r} instead of {expected!r}"
            return


async def test_ten_adapters_are_swapped_while_others_decode_and_nobody_notices(
    engine: Engine, tmp_path: Path
) -> None:
    base = Path(engine.model.source)
    contents = [an_adapter(base, tmp_path / f"adapter-{seed}", seed=seed) for seed in (0, 1)]
    rows = [
        a_release_row(number, contents[number % 2], kind=ArtifactKind.LORA)
        for number in range(1, 3 + NUM_SWAPS)
    ]
    async with gateway(engine, tmp_path) as rig:
        alone: dict[tuple[int, str], Answer] = {}
        for row in rows[:2]:
            await rig.swap(row)
            alone |= {(row["release_seq"] % 2, prompt): await ask(rig, prompt) for prompt in PROMPTS}
        assert all(alone[0, prompt].tokens != alone[1, prompt].tokens for prompt in PROMPTS)
        users, stop = Users(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for prompt in PROMPTS:
                group.create_task(users.go_on(rig, prompt, stop))
            for row in rows[2:]:
                swapped = await rig.swap(row)
                assert swapped.pause_ms == 0
            stop.set()
        assert users.num_overtaken > 0, "nobody was asking while an adapter was swapped"
        seqs: dict[str, int] = {row["release_id"]: row["release_seq"] for row in rows}
        for prompt, answer in users.answers:
            check_same(answer, alone[seqs[answer.release_id] % 2, prompt])
        for call in rig.recorder.calls():
            assert [span.release_seq for span in call.weight_spans] == [seqs[call.release_id]]
        while len(loaded := await adapters_of(rig, engine)) > 1:  # the last ones asked are unloaded later
            await asyncio.sleep(0.1)
        assert loaded == [f"{SCENARIO}--r{2 + NUM_SWAPS:06d}"]


async def adapters_of(rig: SwapRig, engine: Engine) -> list[str]:
    """Name what the engine has loaded beside its base model."""
    models = (await rig.client.get(f"{engine.url}/v1/models")).json()["data"]
    return [model["id"] for model in models if model["id"] != engine.model.name]
