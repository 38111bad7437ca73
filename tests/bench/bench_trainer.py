"""Shell: how fast a trainer learns and saves: `python -m tests.bench.bench_trainer`.

Tokens per second of our step beside a plain loop of the same mathematics (padded, one process, no ranks),
both on the small model; rounds alternate, and each takes its best by the processor's clock, one thread each,
so that what else runs on the machine falls on both alike. Then the time of a checkpoint and of an export
beside plain writes of as many bytes. Every part runs in a process of its own, whose peak of memory is told.
Prints one JSON line.
"""

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, PreTrainedModel

from deploy.embedded.model import prepare_model
from deploy.settings import read_cache_dir
from schemas.events import ArtifactKind, ExperienceAssembled, OptimizerState
from schemas.packed import floats, num_tokens, tokens
from tests.builders import an_experience_assembled, pack_logprobs, pack_mask, pack_temperatures, pack_tokens
from tests.tiny import a_blueprint, alone, batch_of
from trainers.batch import Batch
from trainers.build import build
from trainers.checkpoint import Checkpoints
from trainers.export import Exports
from trainers.results import trained_of
from trainers.step import StepLimits, train

NUM_ROUNDS = 3
NUM_SAMPLES = 16
PROMPT_TOKENS, ANSWER_TOKENS = (24, 64), (12, 49)
VOCAB_SIZE = 49_152
REACH, BEYOND = 0.9, 1.0
ALPHA, EPS_LOW, EPS_HIGH = 1.5, 0.3, 5.0
PACK_TOKENS_MAX = 2_048
CHUNK_BYTES = 16 * 1024 * 1024
MIB = 1024 * 1024


def a_batch(
    seq: int,
    *,
    num_samples: int = NUM_SAMPLES,
    prompt_tokens: tuple[int, int] = PROMPT_TOKENS,
    answer_tokens: tuple[int, int] = ANSWER_TOKENS,
) -> Batch:
    """Build samples of uneven lengths, as chat makes them."""
    chance = np.random.default_rng(seq)
    made = []
    for _ in range(num_samples):
        num_prompt, num_answer = int(chance.integers(*prompt_tokens)), int(chance.integers(*answer_tokens))
        num = num_prompt + num_answer
        logprobs = np.concatenate([np.zeros(num_prompt), -chance.exponential(2.0, num_answer)])
        made.append(
            an_experience_assembled(
                token_ids=pack_tokens(chance.integers(0, VOCAB_SIZE, num).tolist()),
                loss_mask=pack_mask([0] * num_prompt + [1] * num_answer),
                logprobs=pack_logprobs(logprobs.tolist()),
                temperatures=pack_temperatures([1.0] * num),
                num_prompt_tokens=num_prompt,
                reward=float(chance.random()),
            )
        )
    return batch_of(made, seq)


class PlainLoop:
    """The same mathematics, written down for one process: padded rows, a head, two optimizers."""

    def __init__(self, folder: Path) -> None:
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.head = nn.Linear(self.model.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        settings: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.0}
        self.optimizer = AdamW(self.model.parameters(), lr=1e-6, **settings)
        self.head_optimizer = AdamW(self.head.parameters(), lr=1e-3, **settings)

    def step(self, batch: Batch) -> None:
        """Take one step."""
        ids, filled, actions, behavior, rewards = padded(batch.experiences)
        body: nn.Module = self.model.base_model
        output: nn.Module = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        hidden = body(input_ids=ids, attention_mask=filled, use_cache=False).last_hidden_state[:, :-1]
        mask = actions[:, 1:]
        chosen = hidden[mask]
        flat = -nn.functional.cross_entropy(output(chosen), ids[:, 1:][mask], reduction="none")
        logprobs = torch.zeros(mask.shape).masked_scatter(mask, flat)
        states = chosen.detach()
        with torch.no_grad():
            values = torch.zeros(mask.shape).masked_scatter(mask, self.head(states)[:, 0])
        advantages = plain_advantages(rewards, values, mask)
        ratios = (logprobs.detach() - behavior[:, 1:]).exp()
        weights = torch.where((ratios > 1 - EPS_LOW) & (ratios < 1 + EPS_HIGH), ratios * advantages, 0)
        (-(weights * mask * logprobs).sum() / len(rewards)).backward()  # type: ignore[no-untyped-call]
        targets = rewards[:, None].expand(mask.shape)[mask]
        for _ in range(2):
            loss = (self.head(states)[:, 0] - targets).square().mean()
            loss.backward()
            self.head_optimizer.step()
            self.head_optimizer.zero_grad()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def padded(samples: Sequence[ExperienceAssembled]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Lay samples side by side, filled up on the right."""
    longest = max(num_tokens(one.token_ids) for one in samples)
    ids, filled = torch.zeros((2, len(samples), longest), dtype=torch.int64)
    actions, behavior = filled.bool(), torch.zeros((len(samples), longest))
    for row, one in enumerate(samples):
        num = num_tokens(one.token_ids)
        ids[row, :num] = torch.from_numpy(tokens(one.token_ids).astype(np.int64))
        filled[row, :num] = 1
        actions[row, :num] = torch.tensor(list(one.loss_mask), dtype=torch.bool)
        behavior[row, :num] = torch.from_numpy(floats(one.logprobs).copy())
    return ids, filled, actions, behavior, torch.tensor([one.reward or 0.0 for one in samples])


def plain_advantages(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Generalised advantages, row by row."""
    found = torch.zeros_like(values)
    for row, places in enumerate(mask):
        at = places.nonzero()[:, 0].tolist()
        lam = 1 - 1 / (ALPHA * len(at))
        later_value, later, reward = 0.0, 0.0, float(rewards[row])
        for t in reversed(at):
            value = float(values[row, t])
            later = reward + later_value - value + lam * later
            found[row, t], later_value, reward = later, value, 0.0
    return found


def measure_steps(folder: Path) -> dict[str, float]:
    """Give tokens per second of ours and of the plain loop, best rounds."""
    ranks = alone()
    learner = build(a_blueprint(folder, training={"learning_rate": 1e-6}), ranks)
    limits = StepLimits(pack_tokens_max=PACK_TOKENS_MAX, gradient_norm_max=1.0)
    plain = PlainLoop(folder)
    steps: dict[str, Callable[[Batch], object]] = {
        "ours": lambda batch: train(learner, batch, ranks, limits),
        "plain": plain.step,
    }
    best = dict.fromkeys(steps, 0.0)
    for seq in range(NUM_ROUNDS):
        batch = a_batch(seq)
        for name, step in steps.items():
            began_s = time.process_time()
            step(batch)
            best[name] = max(best[name], batch.num_tokens / (time.process_time() - began_s))
    ranks.close()
    return {f"{name}_tokens_per_cpu_s": rate for name, rate in best.items()}


def measure_one(folder: Path, what: str) -> dict[str, float]:
    """Take two steps of one kind, for its peak of memory alone."""
    if what == "plain":
        loop = PlainLoop(folder)
        for seq in range(2):
            loop.step(a_batch(seq))
        return {}
    ranks = alone()
    learner = build(a_blueprint(folder, training={"learning_rate": 1e-6}), ranks)
    for seq in range(2):
        train(
            learner, a_batch(seq), ranks, StepLimits(pack_tokens_max=PACK_TOKENS_MAX, gradient_norm_max=1.0)
        )
    ranks.close()
    return {}


def measure_disk(folder: Path) -> dict[str, float]:
    """Give seconds of a checkpoint and of an export, and of plain writes of as many bytes."""
    ranks = alone()
    learner = build(a_blueprint(folder), ranks)
    batch = a_batch(0)
    train(learner, batch, ranks, StepLimits(pack_tokens_max=PACK_TOKENS_MAX, gradient_norm_max=1.0))
    result = trained_of(
        batch.sealed,
        kind=ArtifactKind.CHECKPOINT,
        step=1,
        metrics={},
        optimizer=OptimizerState.FRESH,
        is_publishable=True,
        at_us=1,
    )
    with tempfile.TemporaryDirectory(dir=read_cache_dir()) as name:
        at = Path(name)
        checkpoints, exports = Checkpoints(at, ranks), Exports(at, ranks, model_folder=folder, lora=None)
        found = _timed("checkpoint", at, lambda: checkpoints.save(learner, "one"))
        found |= _timed("export", at, lambda: exports.write(learner, result))
    ranks.close()
    return found


def _timed(name: str, folder: Path, write: Callable[[], object]) -> dict[str, float]:
    before = _bytes_in(folder)
    began_s = time.perf_counter()
    write()
    took_s = time.perf_counter() - began_s
    num_bytes = _bytes_in(folder) - before
    return {
        f"{name}_s": took_s,
        f"{name}_mib": num_bytes / MIB,
        f"{name}_plain_write_s": _plain_write_s(folder / "plain", num_bytes),
    }


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _plain_write_s(path: Path, num_bytes: int) -> float:
    chunk = os.urandom(CHUNK_BYTES)
    began_s = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(num_bytes // CHUNK_BYTES):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    took_s = time.perf_counter() - began_s
    path.unlink()
    return took_s


def in_child(measure: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Measure in a process of its own; add its peak of memory."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, measure, arguments))
    child.start()
    found: dict[str, float] = ours.recv()
    child.join()
    return found


def _child(pipe: Any, measure: Callable[..., dict[str, float]], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    found = measure(*arguments)
    pipe.send(found | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def main() -> None:
    """Measure everything and print one line."""
    folder = Path(prepare_model("smollm2-135m", read_cache_dir()).source)
    steps, disk = in_child(measure_steps, folder), in_child(measure_disk, folder)
    ratio = steps["ours_tokens_per_cpu_s"] / steps["plain_tokens_per_cpu_s"]
    found: dict[str, float] = {name: value for name, value in steps.items() if name != "peak_mib"}
    found |= {"ratio": ratio, "reach": REACH, "beyond": BEYOND}
    found |= {name: value for name, value in disk.items() if name != "peak_mib"}
    for what in ("ours", "plain"):
        found[f"{what}_peak_mib"] = in_child(measure_one, folder, what)["peak_mib"]
    sys.stdout.write(json.dumps({"bench": "trainer"} | {k: round(v, 3) for k, v in found.items()}) + "\n")


if __name__ == "__main__":
    main()
