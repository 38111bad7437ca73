"""The numbers of a step: they depend on the batch, not on packs, ranks or the machine's mood."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from schemas.errors import RejectedError
from tests.builders import pack_logprobs, pack_temperatures
from tests.tiny import a_batch, a_blueprint, alone, run_ranks, save_tiny_model
from trainers.batch import Batch
from trainers.build import build
from trainers.model import Lora
from trainers.packing import pack
from trainers.ranks import Ranks
from trainers.step import MEASURED, Learner, StepLimits, train
from trainers.weights import gathered, trainable

LIMITS = StepLimits(pack_tokens_max=64, gradient_norm_max=1.0)
RANKS_TOLERANCE = 1e-5
PACKED_TOLERANCE = 1e-4


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "model")


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    ranks = alone()
    yield ranks
    ranks.close()


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    found = gathered(trainable(learner.policy), keeps=True)
    if learner.critic is not None:
        critic = gathered(trainable(learner.critic.network), keeps=True)
        found |= {f"critic.{name}": tensor for name, tensor in critic.items()}
    return {name: tensor.clone() for name, tensor in found.items()}


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "head": (6, {}),
    "separate": (6, {"critic": "separate"}),
    "lora": (6, {"lora": Lora(rank=4, alpha=8.0)}),
    "recomputed": (6, {"training": {"has_activation_checkpointing": True}}),
    "one sample": (1, {}),
    "one sample, separate": (1, {"critic": "separate"}),
}


def three_steps_each(ranks: Ranks, model: Path, result: Path) -> None:
    found = {}
    for name, (num_samples, changes) in CASES.items():
        learner = build(a_blueprint(model, **changes), ranks)
        batches = [a_batch(seq, num_samples=num_samples) for seq in range(3)]
        metrics = [dict(train(learner, batch, ranks, LIMITS)) for batch in batches]
        found[name] = {"metrics": metrics, "weights": weights_of(learner)}
    if ranks.is_first:
        torch.save(found, result)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """Let one rank and two ranks take the same three steps, in processes of their own."""
    folder = tmp_path_factory.mktemp("ranks")
    model = save_tiny_model(folder / "model")
    for num_ranks in (1, 2):
        run_ranks(num_ranks, three_steps_each, folder / str(num_ranks), model, folder / f"{num_ranks}.pt")
    return {num_ranks: torch.load(folder / f"{num_ranks}.pt") for num_ranks in (1, 2)}


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_learn_what_one_rank_learns(learned: dict[int, Any], case: str) -> None:
    one, two = learned[1][case], learned[2][case]
    torch.testing.assert_close(two["weights"], one["weights"], atol=RANKS_TOLERANCE, rtol=0)
    for alone_metrics, shared_metrics in zip(one["metrics"], two["metrics"], strict=True):
        assert alone_metrics.keys() == shared_metrics.keys()
        for name in alone_metrics.keys() - MEASURED:
            assert shared_metrics[name] == pytest.approx(alone_metrics[name], abs=1e-4, rel=1e-4), name


def test_packed_equals_unpacked(model: Path, ranks: Ranks) -> None:
    policy = build(a_blueprint(model), ranks).policy
    experiences = a_batch(4, num_samples=5).experiences
    packed, hidden = policy(pack(experiences, 0))
    one_by_one = [policy(pack([experience], 0)) for experience in experiences]
    alone_logits = torch.cat([logits for logits, _ in one_by_one])
    torch.testing.assert_close(packed, alone_logits, atol=PACKED_TOLERANCE, rtol=0)
    torch.testing.assert_close(
        hidden, torch.cat([states for _, states in one_by_one]), atol=PACKED_TOLERANCE, rtol=0
    )


@pytest.mark.parametrize("critic", ["head", "separate"])
def test_a_step_is_the_same_in_many_packs(model: Path, ranks: Ranks, critic: str) -> None:
    found = []
    for pack_tokens_max in (512, 24):
        learner = build(a_blueprint(model, critic=critic), ranks)
        train(learner, a_batch(0), ranks, replace(LIMITS, pack_tokens_max=pack_tokens_max))
        found.append(weights_of(learner))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=0)


def test_logprobs_are_those_of_the_temperature_that_sampled(model: Path, ranks: Ranks) -> None:
    policy = build(a_blueprint(model), ranks).policy
    experience = a_batch(0, num_samples=1).experiences[0]
    num = len(experience.loss_mask)
    cold = replace(experience, temperatures=pack_temperatures([0.25] * num))
    warm = replace(experience, temperatures=pack_temperatures([1.0] * num))
    (cold_logits, _), (warm_logits, _) = policy(pack([cold], 0)), policy(pack([warm], 0))
    torch.testing.assert_close(cold_logits, warm_logits * 4)


def on_policy(batch: Batch, learner: Learner) -> Batch:
    """Give the batch the logprobs that the learner's own policy has."""
    found = []
    for experience in batch.experiences:
        packed = pack([experience], 0)
        logits, hidden = learner.policy(packed)
        actions = packed.actions(hidden, place=0, batch=batch)
        row = iter(actions.logprobs(logits)[0].tolist())
        logprobs = [next(row) if is_action else 0.0 for is_action in experience.loss_mask]
        found.append(replace(experience, logprobs=pack_logprobs(logprobs)))
    return replace(batch, experiences=tuple(found))


def test_what_the_policy_itself_sampled_has_ratio_one(model: Path, ranks: Ranks) -> None:
    learner = build(a_blueprint(model), ranks)
    metrics = train(learner, on_policy(a_batch(0), learner), ranks, LIMITS)
    assert metrics["sao/ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["sao/effective_token_rate"] == 1.0
    assert metrics["train_rollout_logprob_abs_diff"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["grad_norm"] > 0


def test_a_warm_up_batch_moves_the_critic_only(model: Path, ranks: Ranks) -> None:
    learner = build(a_blueprint(model, critic_warmup_batches=1), ranks)
    before = weights_of(learner)
    train(learner, a_batch(0), ranks, LIMITS)
    after = weights_of(learner)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"critic.linear.weight", "critic.linear.bias"}
    assert learner.num_steps == 0
    train(learner, a_batch(1), ranks, LIMITS)
    assert learner.num_steps == 1
    assert not torch.equal(after["model.model.norm.weight"], weights_of(learner)["model.model.norm.weight"])


@pytest.mark.parametrize("spoilt", ["reward", "logprobs"])
def test_a_batch_that_is_not_finite_changes_nothing(model: Path, ranks: Ranks, spoilt: str) -> None:
    learner = build(a_blueprint(model), ranks)
    before = weights_of(learner)
    batch = a_batch(0)
    first = batch.experiences[0]
    nans = pack_logprobs([float("nan")] * len(first.loss_mask))
    bad = replace(first, reward=float("nan")) if spoilt == "reward" else replace(first, logprobs=nans)
    with pytest.raises(RejectedError, match="finite") as refused:
        train(learner, replace(batch, experiences=(bad, *batch.experiences[1:])), ranks, LIMITS)
    assert refused.value.reason == "non_finite"
    torch.testing.assert_close(weights_of(learner), before, atol=0, rtol=0)
    assert not any(parameter.grad is not None for parameter in learner.policy.parameters())
