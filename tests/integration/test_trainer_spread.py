"""Networks under FSDP, as on a GPU: bf16 is computed in, and what a rank holds is its fp32 share."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from math import isfinite
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.optim import AdamW

from recipes.sao.objective import SAOObjective
from recipes.sao.recipe import SAOOptions
from schemas.errors import RejectedError, UnavailableError
from tests.builders import pack_temperatures
from tests.tiny import a_batch, a_blueprint, alone, save_tiny_model
from trainers.attention import SDPA
from trainers.build import build
from trainers.critic import TrainedCritic
from trainers.model import Policy, ValueModel, load_model
from trainers.packing import pack
from trainers.parallel import layers_of, spread
from trainers.ranks import Ranks
from trainers.step import Learner, StepLimits, train
from trainers.weights import trainable

LIMITS = StepLimits(pack_tokens_max=64, gradient_norm_max=1.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("spread") / "model")


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    ranks = alone()
    yield ranks
    ranks.close()


def a_spread_learner(model: Path, ranks: Ranks, **options: int) -> Learner:
    policy = Policy(load_model(model, attention=SDPA))
    value_model = ValueModel(load_model(model, attention=SDPA))
    for network in (policy, value_model):
        spread(network, ranks, precision="bf16", has_activation_checkpointing=False)
    critic = TrainedCritic(
        value_model, AdamW(value_model.parameters(), lr=1e-3), ranks, gradient_norm_max=1.0
    )
    objective = SAOObjective(SAOOptions(critic="separate", **options), critic)
    optimizer = AdamW(trainable(policy).values(), lr=1e-3)
    return Learner(policy=policy, optimizer=optimizer, critic=critic, objective=objective, num_steps=0)


def test_a_temperature_is_applied_as_it_is(model: Path, ranks: Ranks) -> None:
    """Rounded to bf16, 0.7 would be 0.699."""
    policy = a_spread_learner(model, ranks).policy
    experience = a_batch(0, num_samples=1).experiences[0]
    (warm, _), (cold, _) = (
        policy(pack([replace(experience, temperatures=pack_temperatures(temperatures))], 0))
        for temperatures in ([1.0] * len(experience.loss_mask), [0.7] * len(experience.loss_mask))
    )
    torch.testing.assert_close(cold, warm / 0.7, rtol=1e-6, atol=0)


@pytest.mark.parametrize("num_warmups", [0, 1])
@pytest.mark.parametrize("reward", [0.5, float("nan")])
def test_after_a_batch_each_rank_holds_its_share_in_fp32(
    model: Path, ranks: Ranks, num_warmups: int, reward: float
) -> None:
    """Also where no backward pass followed, and where the batch was refused."""
    learner = a_spread_learner(model, ranks, critic_warmup_batches=num_warmups)
    batch = a_batch(0)
    first = replace(batch.experiences[0], reward=reward)
    with nullcontext() if isfinite(reward) else pytest.raises(RejectedError, match="finite"):
        train(learner, replace(batch, experiences=(first, *batch.experiences[1:])), ranks, LIMITS)
    assert learner.critic is not None
    for network in (learner.policy, learner.critic.network):
        for weight in network.parameters():
            assert isinstance(weight, DTensor)
            assert weight.dtype == torch.float32


def exhaust(module: torch.nn.Module, arguments: object, result: torch.Tensor) -> None:
    """Run out of memory in the backward pass, half-way."""

    def refuse(gradient: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    result.register_hook(refuse)  # type: ignore[no-untyped-call]


def test_memory_that_runs_out_under_fsdp_ends_the_trainer(model: Path, ranks: Ranks) -> None:
    """What the broken pass left behind would be added to the next gradient."""
    learner = a_spread_learner(model, ranks)
    layers_of(learner.policy)[1].register_forward_hook(exhaust)
    with pytest.raises(UnavailableError) as ended:
        train(learner, a_batch(0), ranks, LIMITS)
    assert ended.value.reason == "out_of_memory"


def test_memory_that_runs_out_in_whole_networks_costs_the_batch_alone(model: Path, ranks: Ranks) -> None:
    learner, other = (build(a_blueprint(model), ranks) for _ in range(2))
    hook = layers_of(learner.policy)[1].register_forward_hook(exhaust)
    with pytest.raises(RejectedError) as refused:
        train(learner, a_batch(0), ranks, LIMITS)
    hook.remove()
    assert refused.value.reason == "out_of_memory"
    for each in (learner, other):
        train(each, a_batch(1), ranks, LIMITS)
    torch.testing.assert_close(trainable(learner.policy), trainable(other.policy), atol=0, rtol=0)
