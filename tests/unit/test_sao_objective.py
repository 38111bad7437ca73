"""The mathematics of SAO against plain Python that shares no code and no tensor with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, isclose, log, nan
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recipes.sao.objective import SAOObjective, gae, policy_lambda, sao_loss
from recipes.sao.recipe import SAOOptions
from schemas.objective import Actions

TOLERANCE = 1e-6
unhurried = settings(deadline=None)  # the first backward pass of a process takes seconds
Rows = list[list[float]]


@dataclass(frozen=True)
class Case:
    logprobs: Rows
    behavior: Rows
    advantages: Rows
    mask: list[list[bool]]
    rewards: Rows
    values: Rows
    lam: list[float]
    gamma: float
    eps_low: float
    eps_high: float


def rows(elements: st.SearchStrategy[Any], num_samples: int, num_tokens: int) -> st.SearchStrategy[Any]:
    row = st.lists(elements, min_size=num_tokens, max_size=num_tokens)
    return st.lists(row, min_size=num_samples, max_size=num_samples)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 7)))
    numbers = rows(st.floats(-3, 3), *shape)
    return Case(
        logprobs=draw(rows(st.floats(-6, 0), *shape)),
        behavior=draw(rows(st.floats(-6, 0), *shape)),
        advantages=draw(numbers),
        mask=draw(rows(st.booleans(), *shape)),
        rewards=draw(numbers),
        values=draw(numbers),
        lam=draw(st.lists(st.floats(0, 1), min_size=shape[0], max_size=shape[0])),
        gamma=draw(st.sampled_from([1.0, 0.97, 0.5])),
        eps_low=draw(st.sampled_from([0.3, 0.8])),
        eps_high=draw(st.sampled_from([5.0, 3.0])),
    )


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def plain_weight(case: Case, i: int, t: int) -> float:
    """f(r)·A of one token, dropped outside the trust region."""
    ratio = exp(case.logprobs[i][t] - case.behavior[i][t])
    is_kept = case.mask[i][t] and 1 - case.eps_low < ratio < 1 + case.eps_high
    return ratio * case.advantages[i][t] if is_kept else 0.0


def plain_loss(case: Case) -> float:
    total = 0.0
    for i, row in enumerate(case.logprobs):
        total += sum(plain_weight(case, i, t) * row[t] for t in range(len(row)))
    return -total / len(case.logprobs)


def plain_advantages(case: Case, lam: Sequence[float]) -> Rows:
    """Each advantage by its definition: a discounted sum of what surprises from here on."""
    found = [[0.0] * len(row) for row in case.values]
    for i, mask in enumerate(case.mask):
        places = [t for t, is_action in enumerate(mask) if is_action]
        values = [case.values[i][t] for t in places] + [0.0]
        surprises = [
            case.rewards[i][t] + case.gamma * values[k + 1] - values[k] for k, t in enumerate(places)
        ]
        for k, t in enumerate(places):
            found[i][t] = sum((case.gamma * lam[i]) ** n * s for n, s in enumerate(surprises[k:]))
    return found


def loss_of(case: Case) -> tuple[Tensor, Tensor]:
    logprobs = tensor(case.logprobs).requires_grad_()
    arguments = (tensor(case.behavior), tensor(case.advantages), torch.tensor(case.mask))
    return sao_loss(logprobs, *arguments, eps_low=case.eps_low, eps_high=case.eps_high), logprobs


@unhurried
@given(cases())
def test_the_loss_and_its_gradient_equal_plain_python(case: Case) -> None:
    loss, logprobs = loss_of(case)
    loss.backward()  # type: ignore[no-untyped-call]
    assert isclose(loss.item(), plain_loss(case), abs_tol=TOLERANCE)
    expected = [
        [-plain_weight(case, i, t) / len(case.mask) for t in range(len(case.mask[0]))]
        for i in range(len(case.mask))
    ]
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, tensor(expected), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("ratio", "is_kept"),
    [(0.7, False), (0.7001, True), (1.0, True), (5.999, True), (6.0, False), (1e9, False)],
)
def test_a_ratio_at_or_beyond_the_bounds_is_dropped_not_clipped(ratio: float, is_kept: bool) -> None:
    logprobs = tensor([[log(ratio) - 2.0]]).requires_grad_()
    one = tensor([[1.0]])
    loss = sao_loss(logprobs, one * -2.0, one, one > 0, eps_low=0.3, eps_high=5.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert float(-logprobs.grad) == pytest.approx(ratio if is_kept else 0.0)


@pytest.mark.parametrize("anything", [nan, inf, -inf, 1e30])
def test_what_stands_at_masked_places_has_no_influence(anything: float) -> None:
    mask = torch.tensor([[True, False]])
    logprobs = tensor([[-1.0, anything]]).requires_grad_()
    row = tensor([[-1.0, anything]])
    loss = sao_loss(logprobs, row, row, mask, eps_low=0.3, eps_high=5.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(-1.0)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[1.0, 0.0]]
    advantages, _ = gae(row, row, mask, lam=0.5, gamma=1.0)
    assert advantages.tolist() == [[0.0, 0.0]]


@unhurried
@given(cases())
def test_advantages_equal_their_definition_with_a_lambda_per_sample(case: Case) -> None:
    mask = torch.tensor(case.mask)
    advantages, returns = gae(
        tensor(case.rewards), tensor(case.values), mask, lam=tensor(case.lam), gamma=case.gamma
    )
    expected = tensor(plain_advantages(case, case.lam))
    torch.testing.assert_close(advantages, expected, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(returns, expected + tensor(case.values), atol=TOLERANCE, rtol=0)


@unhurried
@given(cases())
def test_with_lambda_one_and_no_discount_the_target_is_the_reward_to_come(case: Case) -> None:
    _, returns = gae(tensor(case.rewards), tensor(case.values), torch.tensor(case.mask), lam=1.0, gamma=1.0)
    for i, mask in enumerate(case.mask):
        for t in (t for t, is_action in enumerate(mask) if is_action):
            to_come = sum(case.rewards[i][u] for u in range(t, len(mask)) if mask[u])
            assert isclose(float(returns[i][t]), to_come, abs_tol=TOLERANCE)


@pytest.mark.parametrize(("num_actions", "expected"), [(0, 1 / 3), (1, 1 / 3), (10, 14 / 15)])
def test_lambda_grows_with_the_length_of_the_answer(num_actions: int, expected: float) -> None:
    assert float(policy_lambda(tensor([num_actions]), alpha=1.5)) == pytest.approx(expected)


def test_lambda_is_never_negative() -> None:
    assert float(policy_lambda(tensor([1.0]), alpha=0.5)) == 0.0


class PlainCritic:
    """A critic that estimates from the first hidden feature, and remembers how often it was updated."""

    def __init__(self) -> None:
        self.scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        self.losses: list[float] = []

    def values(self, actions: Actions) -> Tensor:
        return actions.rows(actions.hidden[:, 0] * self.scale)

    def update(self, packs: Sequence[Actions], loss_of: Callable[[Actions, Tensor], Tensor]) -> float:
        losses = torch.stack([loss_of(pack, self.values(pack)) for pack in packs])
        (gradient,) = torch.autograd.grad(losses.sum(), self.scale)
        with torch.no_grad():
            self.scale -= 0.1 * gradient
        self.losses.append(losses.sum().item())
        return float(gradient.abs())


OPTIONS = SAOOptions(critic_warmup_batches=2)
LENGTHS = (3, 1, 5)


def a_batch(*, num_samples: int = 3, rewards: Sequence[float] = (1.0, 0.0, 0.5)) -> Actions:
    lengths = LENGTHS[:num_samples]
    mask = torch.tensor([[t < length for t in range(max(lengths))] for length in lengths])
    num_actions = sum(lengths)
    generator = torch.Generator().manual_seed(7)
    behavior = torch.rand(mask.shape, generator=generator, dtype=torch.float64) - 2.5
    return Actions(
        token_ids=torch.arange(num_actions) % 4,
        action_mask=mask,
        behavior_logprobs=torch.where(mask, behavior, 0),
        rewards=tensor(list(rewards[:num_samples])),
        policy_lags=tensor([2.0, 0.0, 1.0][:num_samples]),
        groups=(None,) * num_samples,
        all_rewards=tensor(list(rewards)),
        all_groups=(None,) * len(rewards),
        hidden=torch.rand((num_actions, 2), generator=generator, dtype=torch.float64),
        num_samples=num_samples,
        num_actions=num_actions,
        place=0,
    )


def some_logits(batch: Actions) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    size = (batch.token_ids.shape[0], 4)
    return torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_()


def packs_of_one(batch: Actions) -> list[Actions]:
    """The same batch, each sample in a pack of its own."""
    lengths, found, start = batch.action_mask.sum(1).tolist(), [], 0
    for i, length in enumerate(lengths):
        flat, row = slice(start, start + length), (slice(i, i + 1), slice(0, length))
        start += length
        found.append(
            replace(
                batch,
                token_ids=batch.token_ids[flat],
                hidden=batch.hidden[flat],
                action_mask=batch.action_mask[row],
                behavior_logprobs=batch.behavior_logprobs[row],
                rewards=batch.rewards[i : i + 1],
                policy_lags=batch.policy_lags[i : i + 1],
                groups=batch.groups[i : i + 1],
                place=i,
            )
        )
    return found


def added(parts: Sequence[Any]) -> dict[str, float]:
    names = parts[0].keys()
    return {name: (max if name.endswith("_max") else sum)(part[name] for part in parts) for name in names}


def test_nothing_depends_on_how_a_batch_is_cut_into_packs() -> None:
    batch = a_batch()
    logits = some_logits(batch)
    whole_critic, cut_critic = PlainCritic(), PlainCritic()
    whole, cut = SAOObjective(OPTIONS, whole_critic), SAOObjective(OPTIONS, cut_critic)
    loss, sums = whole.loss(batch, logits)
    packs = packs_of_one(batch)
    parts = [
        cut.loss(pack, piece) for pack, piece in zip(packs, torch.split(logits, list(LENGTHS)), strict=True)
    ]
    assert isclose(loss.item(), sum(part.item() for part, _ in parts), abs_tol=1e-12)
    assert loss.item() != 0
    metrics = whole.metrics({**sums, **whole.auxiliary_step([batch])})
    assert metrics == pytest.approx(
        cut.metrics({**added([part for _, part in parts]), **cut.auxiliary_step(packs)})
    )
    assert whole_critic.scale.item() == pytest.approx(cut_critic.scale.item())


def test_the_critic_is_updated_twice_towards_the_reward_to_come() -> None:
    batch, critic = a_batch(), PlainCritic()
    objective = SAOObjective(OPTIONS, critic)
    objective.loss(batch, some_logits(batch))
    objective.auxiliary_step([batch])
    assert len(critic.losses) == 2
    rewards = batch.rows(torch.repeat_interleave(batch.rewards, torch.tensor(LENGTHS)))
    first = ((rewards - batch.rows(batch.hidden[:, 0] * 0.5)) ** 2).sum() / sum(LENGTHS)
    assert critic.losses[0] == pytest.approx(first.item())
    assert critic.losses[1] < critic.losses[0]


def test_advantages_come_from_the_values_before_the_updates() -> None:
    batch, critic = a_batch(), PlainCritic()
    objective = SAOObjective(OPTIONS, critic)
    first, _ = objective.loss(batch, some_logits(batch))
    objective.auxiliary_step([batch])
    second, _ = objective.loss(batch, some_logits(batch))
    assert first.item() != pytest.approx(second.item())


def test_the_metrics_equal_plain_python() -> None:
    batch = a_batch()
    logits = some_logits(batch)
    objective = SAOObjective(OPTIONS, PlainCritic())
    _, sums = objective.loss(batch, logits)
    found = objective.metrics({**sums, **objective.auxiliary_step([batch])})
    behavior = [x for row, n in zip(batch.behavior_logprobs.tolist(), LENGTHS, strict=True) for x in row[:n]]
    rows_of_logits = logits.tolist()
    logprobs = [
        row[int(token)] - log(sum(exp(x) for x in row))
        for row, token in zip(rows_of_logits, batch.token_ids.tolist(), strict=True)
    ]
    ratios = [exp(a - b) for a, b in zip(logprobs, behavior, strict=True)]
    targets = [1.0] * 3 + [0.0] + [0.5] * 5
    errors = [y - 0.5 * h for y, h in zip(targets, batch.hidden[:, 0].tolist(), strict=True)]
    assert found["sao/ratio_mean"] == pytest.approx(sum(ratios) / 9)
    assert found["sao/effective_token_rate"] == pytest.approx(sum(0.7 < r < 6 for r in ratios) / 9)
    assert found["train_rollout_logprob_abs_diff"] == pytest.approx(
        sum(abs(a - b) for a, b in zip(logprobs, behavior, strict=True)) / 9
    )
    assert found["sao/policy_lag_max"] == 2.0
    assert found["sao/policy_lag_mean"] == pytest.approx(1.0)
    assert found["critic/explained_variance"] == pytest.approx(1 - variance(errors) / variance(targets))
    assert found["reward_mean"] == pytest.approx(0.5)
    assert found["critic/grad_norm"] > 0


def variance(numbers: Sequence[float]) -> float:
    mean = sum(numbers) / len(numbers)
    return sum((x - mean) ** 2 for x in numbers) / len(numbers)


def test_the_explained_variance_of_equal_targets_is_left_out() -> None:
    batch = a_batch(rewards=(0.3, 0.3, 0.3))
    objective = SAOObjective(OPTIONS, PlainCritic())
    _, sums = objective.loss(batch, some_logits(batch))
    assert "critic/explained_variance" not in objective.metrics(sums)


def test_a_pack_without_actions_adds_nothing_and_still_has_a_gradient() -> None:
    batch = a_batch(num_samples=1)
    empty = replace(
        batch,
        token_ids=batch.token_ids[:0],
        hidden=batch.hidden[:0],
        action_mask=torch.zeros((1, 1), dtype=torch.bool),
        behavior_logprobs=tensor([[0.0]]),
    )
    logits = some_logits(batch)
    loss, sums = SAOObjective(OPTIONS, PlainCritic()).loss(empty, logits[:0])
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()
    assert not any(sums.values())


def test_the_policy_waits_until_the_critic_is_warm() -> None:
    objective = SAOObjective(OPTIONS, PlainCritic())
    assert [objective.trains_policy(seq) for seq in range(4)] == [False, False, True, True]
