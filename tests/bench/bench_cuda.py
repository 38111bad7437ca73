"""Shell: how fast one GPU learns: `python -m tests.bench.bench_cuda`, which `make bench` leaves out.

Tokens per second of our step in bf16, with packs of several sizes, beside a plain loop of the same
mathematics (padded rows, autocast, no ranks). The weights are random, of SmolLM2-135M's shape: speed does not
depend on what they know. Of several steps the best and the median count, by the wall clock; padding is no
token. Prints JSON lines; only ratios within one run compare.
"""

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from recipes.sao.objective import gae, policy_lambda
from tests.bench.bench_trainer import ALPHA, EPS_HIGH, EPS_LOW, MIB, VOCAB_SIZE, a_batch, padded
from tests.tiny import a_blueprint
from trainers.batch import Batch
from trainers.build import build
from trainers.model import ValueHead
from trainers.ranks import Ranks, open_ranks
from trainers.step import StepLimits, train

NUM_WARM_UPS, NUM_ROUNDS = 2, 4
NUM_SAMPLES = 64
PROMPT_TOKENS, ANSWER_TOKENS = (32, 640), (32, 512)
PLAIN_ROWS = 16
"""Of one forward pass: about as many tokens, once filled up, as our packs of 16,384."""
PACK_TOKENS = (65_536, 16_384, 2_048)
"""The first holds a whole batch, the last is the default."""


def save_model(folder: Path) -> Path:
    """Write random weights of the small model's shape."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=576,
        intermediate_size=1_536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8_192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    model: PreTrainedModel = made
    model.save_pretrained(folder)
    return folder


class PlainLoop:
    """The same mathematics, written down for one GPU: padded rows, a head, two optimizers."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.device = device
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model: Any = model.to(device)  # type: ignore[arg-type]  # transformers wraps it
        self.head = ValueHead(self.model.config.hidden_size).to(device)
        settings: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.0}
        self.optimizer = AdamW(self.model.parameters(), lr=1e-6, **settings)
        self.head_optimizer = AdamW(self.head.parameters(), lr=1e-3, **settings)

    def step(self, batch: Batch) -> None:
        """Take one step."""
        num = len(batch.experiences)
        seen = [self._rows(batch, first, num) for first in range(0, num, PLAIN_ROWS)]
        for _ in range(2):
            for states, targets in seen:
                ((self.head(states) - targets).square().sum() / batch.num_actions).backward()
            self.head_optimizer.step()
            self.head_optimizer.zero_grad()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _rows(self, batch: Batch, first: int, num: int) -> tuple[Tensor, Tensor]:
        rows = padded(batch.experiences[first : first + PLAIN_ROWS])
        ids, filled, actions, behavior, rewards = (tensor.to(self.device) for tensor in rows)
        mask = actions[:, 1:]
        with torch.autocast(self.device.type, torch.bfloat16):
            hidden = self.model.base_model(
                input_ids=ids, attention_mask=filled, use_cache=False
            ).last_hidden_state
            chosen = hidden[:, :-1][mask]
            logits = self.model.get_output_embeddings()(chosen).float()
        flat = -nn.functional.cross_entropy(logits, ids[:, 1:][mask], reduction="none")
        logprobs = torch.zeros(mask.shape, device=self.device).masked_scatter(mask, flat)
        states = chosen.detach().float()
        with torch.no_grad():
            values = torch.zeros_like(logprobs).masked_scatter(mask, self.head(states))
        advantages = advantages_of(rewards.cpu(), values.cpu(), mask.cpu()).to(self.device)
        ratios = (logprobs.detach() - behavior[:, 1:]).exp()
        weights = torch.where((ratios > 1 - EPS_LOW) & (ratios < 1 + EPS_HIGH), ratios * advantages, 0)
        (-(weights * mask * logprobs).sum() / num).backward()  # type: ignore[no-untyped-call]
        return states, rewards[:, None].expand(mask.shape)[mask]


def advantages_of(rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Generalised advantages, the reward at each row's last action."""
    last = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)
    given = torch.zeros_like(values)
    given[torch.arange(len(rewards)), last] = rewards
    found, _ = gae(given, values, mask, lam=policy_lambda(mask.sum(1), alpha=ALPHA), gamma=1.0)
    return found


def our_step(folder: Path, ranks: Ranks, pack_tokens: int, **training: Any) -> Callable[[Batch], object]:
    """Make a learner; give its step."""
    learner = build(a_blueprint(folder, training={"learning_rate": 1e-6, "threads": None} | training), ranks)
    limits = StepLimits(pack_tokens_max=pack_tokens, gradient_norm_max=1.0)
    return lambda batch: train(learner, batch, ranks, limits)


def measure(name: str, make: Callable[[], Callable[[Batch], object]]) -> float:
    """Take steps of one kind and tell of them; give tokens per second."""
    gc.collect()  # the one before lies in cycles
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step, rates, first_s = make(), [], 0.0
    for seq in range(NUM_WARM_UPS + NUM_ROUNDS):
        batch = a_batch(
            seq, num_samples=NUM_SAMPLES, prompt_tokens=PROMPT_TOKENS, answer_tokens=ANSWER_TOKENS
        )
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        step(batch)
        torch.cuda.synchronize()
        took_s = time.perf_counter() - began_s
        first_s = first_s or took_s
        rates.append(batch.num_tokens / took_s)
    found = {
        "tokens_per_s": max(rates[NUM_WARM_UPS:]),
        "tokens_per_s_median": median(rates[NUM_WARM_UPS:]),
        "first_step_s": first_s,
        "peak_mib": torch.cuda.max_memory_allocated() / MIB,
    }
    tell(what=name, **found)
    return found["tokens_per_s"]


def tell(**figures: str | float) -> None:
    """Print one line."""
    rounded = {name: round(it, 3) if isinstance(it, float) else it for name, it in figures.items()}
    sys.stdout.write(json.dumps({"bench": "cuda"} | rounded) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure one kind after the other."""
    disable_progress_bar()  # type: ignore[no-untyped-call]
    device = torch.device("cuda", 0)
    tell(gpu=torch.cuda.get_device_name(), torch=torch.__version__)
    ranks = open_ranks(rank=0, size=1, rendezvous=None, device=device, timeout_s=60)
    with tempfile.TemporaryDirectory() as name:
        folder = save_model(Path(name))
        plain = measure("plain", lambda: PlainLoop(folder, device).step)
        ours = [measure(f"packs of {num}", partial(our_step, folder, ranks, num)) for num in PACK_TOKENS]
        tell(ratio=max(ours) / plain)
        recomputing = partial(our_step, folder, ranks, PACK_TOKENS[0], has_activation_checkpointing=True)
        measure(f"packs of {PACK_TOKENS[0]}, recomputed", recomputing)
    ranks.close()


if __name__ == "__main__":
    main()
