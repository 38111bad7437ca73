"""The engine's log-probabilities and the trainer's are those of one policy (WEIGHTS 2), and the check would
notice if they were not."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import torch
from torch import Tensor

from schemas.events import ExperienceAssembled
from schemas.ids import ExperienceId, derived_id
from schemas.packed import floats
from tests.builders import an_experience_assembled, pack_logprobs, pack_mask, pack_temperatures, pack_tokens
from tests.conftest import EngineEndpoint
from tests.learning.brief import QUESTIONS
from tests.tiny import a_blueprint, alone, batch_of
from trainers.build import build
from trainers.model import Policy
from trainers.packing import packs_of
from trainers.ranks import Ranks
from trainers.step import StepLimits, train

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

TEMPERATURES = (1.0, 0.6)
TOKENS_MAX = 48
TOKENS_MIN = 1_000
ABS_DIFF_MAX = 0.06
CONTROL_ABS_DIFF_MIN = 0.08
LIMITS = StepLimits(pack_tokens_max=512, gradient_norm_max=1.0)
Experiences = Sequence[ExperienceAssembled]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far two policies are apart on what one of them sampled."""

    num_tokens: int
    abs_diff: float
    kl: float
    ratio: float
    effective_rate: float


def ask(engine: EngineEndpoint, question: str, temperature: float, seed: int) -> ExperienceAssembled:
    """Ask the engine as the gateway does, and make a sample of the answer."""
    body = {
        "model": engine.model,
        "messages": [{"role": "user", "content": question}],
        "temperature": temperature,
        "top_p": 1.0,
        "max_tokens": TOKENS_MAX,
        "seed": seed,
        "logprobs": True,
        "return_token_ids": True,
    }
    headers = {"Content-Type": "application/json"}
    request = Request(f"{engine.url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=300) as response:
        answer: dict[str, Any] = json.load(response)
    (choice,) = answer["choices"]
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    return sample_of(
        answer["prompt_token_ids"], choice["token_ids"], logprobs, temperature, f"{question} {seed}"
    )


def sample_of(
    prompt: list[int], chosen: list[int], logprobs: list[float], temperature: float, name: str
) -> ExperienceAssembled:
    assert len(chosen) == len(logprobs)
    masked = [0.0] * len(prompt)
    return an_experience_assembled(
        experience_id=ExperienceId(derived_id("agreement", name)),
        token_ids=pack_tokens([*prompt, *chosen]),
        loss_mask=pack_mask([0] * len(prompt) + [1] * len(chosen)),
        logprobs=pack_logprobs([*masked, *logprobs]),
        temperatures=pack_temperatures([1.0] * len(prompt) + [temperature] * len(chosen)),
        num_prompt_tokens=len(prompt),
        reward=float(len(chosen) < TOKENS_MAX),
    )


@pytest.fixture(scope="module")
def sampled(smollm2_engine: EngineEndpoint) -> dict[float, Experiences]:
    """Sample a thousand tokens and more at each temperature."""
    found: dict[float, Experiences] = {}
    with ThreadPoolExecutor(8) as pool:
        for temperature in TEMPERATURES:
            asked = [
                pool.submit(ask, smollm2_engine, question, temperature, seed)
                for seed in (1, 2)
                for question in QUESTIONS
            ]
            found[temperature] = [future.result() for future in asked]
    return found


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    ranks = alone()
    yield ranks
    ranks.close()


@pytest.fixture
def policy(smollm2_engine: EngineEndpoint, ranks: Ranks) -> Policy:
    return build(a_blueprint(smollm2_engine.model_dir), ranks).policy


def agreement(policy: Policy, experiences: Experiences) -> Agreement:
    """Compare the recorded log-probabilities with the policy's own."""
    batch = batch_of(experiences, 0)
    differences: list[Tensor] = []
    with torch.no_grad():
        for packed in packs_of(batch, rank=0, num_ranks=1, pack_tokens_max=LIMITS.pack_tokens_max):
            logits, hidden = policy(packed)
            actions = packed.actions(hidden, place=0, batch=batch)
            apart = actions.logprobs(logits) - actions.behavior_logprobs
            differences.append(apart[actions.action_mask])
    apart = torch.cat(differences).double()
    ratios = apart.exp()
    return Agreement(
        num_tokens=apart.shape[0],
        abs_diff=apart.abs().mean().item(),
        kl=(ratios - 1 - apart).mean().item(),
        ratio=ratios.mean().item(),
        effective_rate=((ratios > 0.7) & (ratios < 6)).double().mean().item(),
    )


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_trainer_finds_the_engines_policy(
    policy: Policy, sampled: dict[float, Experiences], temperature: float
) -> None:
    found = agreement(policy, sampled[temperature])
    assert found.num_tokens >= TOKENS_MIN
    assert found.abs_diff <= ABS_DIFF_MAX, found
    assert found.kl <= 0.01, found
    assert abs(found.ratio - 1) <= 0.01, found
    assert found.effective_rate >= 0.99, found


def with_noise(policy: Policy, experiences: Experiences) -> Experiences:
    """One per cent of noise on every weight."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.01 * parameter.std() * noise)
    return experiences


def without_temperature(policy: Policy, experiences: Experiences) -> Experiences:
    ones = [pack_temperatures([1.0] * len(one.loss_mask)) for one in experiences]
    return [replace(one, temperatures=each) for one, each in zip(experiences, ones, strict=True)]


def shifted_by_one(policy: Policy, experiences: Experiences) -> Experiences:
    shifted = [np.roll(floats(one.logprobs)[one.num_prompt_tokens :], 1) for one in experiences]
    return [
        replace(one, logprobs=pack_logprobs([*[0.0] * one.num_prompt_tokens, *row.tolist()]))
        for one, row in zip(experiences, shifted, strict=True)
    ]


Spoil = Callable[[Policy, Experiences], Experiences]


@pytest.mark.parametrize("spoil", [with_noise, without_temperature, shifted_by_one])
def test_the_check_notices_what_is_wrong(
    policy: Policy, sampled: dict[float, Experiences], spoil: Spoil
) -> None:
    found = agreement(policy, spoil(policy, sampled[0.6]))
    assert found.abs_diff > CONTROL_ABS_DIFF_MIN, found


def test_the_check_notices_the_weights_of_another_release(
    smollm2_engine: EngineEndpoint, ranks: Ranks, sampled: dict[float, Experiences]
) -> None:
    """Three batches later the policy is another, as it would be three releases later."""
    training = {"learning_rate": 1e-5, "threads": 1}
    learner = build(a_blueprint(smollm2_engine.model_dir, training=training), ranks)
    for seq in range(3):
        train(learner, batch_of(sampled[1.0][16 * seq : 16 * (seq + 1)], seq), ranks, LIMITS)
    found = agreement(learner.policy, sampled[1.0])
    assert found.abs_diff > CONTROL_ABS_DIFF_MIN, found


def test_a_mean_ratio_of_one_proves_nothing(policy: Policy, sampled: dict[float, Experiences]) -> None:
    """Why the check looks at more: noise leaves the mean ratio where it was."""
    found = agreement(policy, with_noise(policy, sampled[1.0]))
    assert abs(found.ratio - 1) <= 0.05, found
