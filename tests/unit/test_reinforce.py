from dataclasses import replace

import pytest
import torch

from recipes.reinforce.objective import ReinforceObjective
from recipes.reinforce.recipe import ReinforceRecipe
from schemas.ids import ExperienceId
from schemas.objective import Actions
from schemas.recipe import Pending, RecipeOptions, Report, load_recipe
from tests.recipe_contract import RECIPE_CHECKS, RecipeCheck
from tests.tiny import a_batch
from trainers.batch import Batch
from trainers.build import objective_type
from trainers.packing import pack


def actions_of(batch: Batch) -> Actions:
    packed = pack(batch.experiences, 0)
    return packed.actions(torch.zeros((packed.action_ids.shape[0], 1)), place=0, batch=batch)


def logits_for(actions: Actions) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn((actions.token_ids.shape[0], 96), generator=generator).requires_grad_()


def test_the_loss_equals_plain_python() -> None:
    actions = actions_of(a_batch(0, num_samples=4))
    logits = logits_for(actions)
    loss, sums = ReinforceObjective(RecipeOptions(), None).loss(actions, logits)
    rewards = actions.rewards.tolist()
    rows = [
        row[mask].tolist() for row, mask in zip(actions.logprobs(logits), actions.action_mask, strict=True)
    ]
    baseline = sum(rewards) / 4
    expected = -sum((r - baseline) * sum(row) / len(row) for r, row in zip(rewards, rows, strict=True)) / 4
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert sums["reward"] == pytest.approx(sum(rewards))


def test_equal_rewards_teach_nothing() -> None:
    batch = a_batch(0, num_samples=4)
    equal = replace(batch, experiences=tuple(replace(one, reward=0.5) for one in batch.experiences))
    logits = logits_for(actions_of(equal))
    loss, _ = ReinforceObjective(RecipeOptions(), None).loss(actions_of(equal), logits)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.abs().max().item() == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("check", RECIPE_CHECKS, ids=lambda check: check.__name__)
def test_the_recipe_keeps_the_contract(check: RecipeCheck) -> None:
    check("recipes.reinforce.recipe:ReinforceRecipe")


def test_the_recipe_is_found_by_its_path_and_so_is_its_objective() -> None:
    recipe = load_recipe("recipes.reinforce.recipe:ReinforceRecipe")
    assert recipe is ReinforceRecipe
    assert objective_type(recipe.objective) is ReinforceObjective


@pytest.mark.parametrize(("num", "expected"), [(1, 0), (2, 2), (3, 2)])
def test_a_batch_is_the_oldest_once_there_are_enough(num: int, expected: int) -> None:
    pending = [
        Pending(experience_id=ExperienceId(str(n)), reward=0.0, group=None, num_tokens=4, num_action_tokens=2)
        for n in range(num)
    ]
    chosen = ReinforceRecipe(RecipeOptions(batch_size=2)).select(pending, head_seq=0)
    assert chosen == tuple(one.experience_id for one in pending[:expected])


@pytest.mark.parametrize(("score", "reward"), [(0.5, 0.5), (None, None), (float("inf"), None)])
def test_the_score_is_the_reward(score: float | None, reward: float | None) -> None:
    report = Report(score=score, feedback=None, metadata={})
    assert ReinforceRecipe(RecipeOptions()).reward(report) == reward
