"""SAO without tensors: rewards, groups, and which experiences make a batch."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recipes.sao.recipe import CODING, SAOOptions, SAORecipe, paper_options
from schemas.events import ArtifactKind
from schemas.ids import ExperienceId
from schemas.recipe import Pending, Recipe, Report, load_recipe
from schemas.settings.load import load_settings
from schemas.settings.scenarios import scenarios_of
from tests.builders import an_experience_assembled
from tests.recipe_contract import RECIPE_CHECKS, RecipeCheck

SAO = "recipes.sao.recipe:SAORecipe"
EXAMPLE = "tests.example_recipe:ThumbsRecipe"
PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


@pytest.mark.parametrize("path", [SAO, EXAMPLE])
@pytest.mark.parametrize("check", RECIPE_CHECKS, ids=lambda check: check.__name__)
def test_a_recipe_keeps_the_contract(check: RecipeCheck, path: str) -> None:
    check(path)


def a_report(**changes: Any) -> Report:
    return Report(**{"score": None, "feedback": None, "metadata": {}} | changes)


def a_pending(number: int, **changes: Any) -> Pending:
    given_ = {"reward": 1.0, "group": None, "num_tokens": 10, "num_action_tokens": 5} | changes
    return Pending(experience_id=ExperienceId(f"e{number}"), **given_)


def sao(**options: Any) -> SAORecipe:
    return SAORecipe(SAOOptions(**options))


def test_sao_is_a_recipe_for_full_weights() -> None:
    recipe: type[Recipe] = SAORecipe
    assert load_recipe(SAO) is recipe
    assert SAORecipe.kind is ArtifactKind.CHECKPOINT
    assert SAORecipe.corrects == frozenset()
    assert SAORecipe.objective == "recipes.sao.objective:SAOObjective"
    assert SAORecipe.evaluation["module"] == "metric_bounds"


def test_the_defaults_are_those_of_the_texts() -> None:
    options = SAOOptions()
    assert (options.critic, options.eps_low, options.eps_high) == ("head", 0.3, 5.0)
    assert (options.gamma, options.lambda_alpha) == (1.0, 1.5)
    assert (options.critic_steps_per_actor, options.critic_warmup_batches) == (2, 0)
    assert (options.credit, options.max_staleness, options.realign_threshold) == ("turn", 0, 0)


def test_the_paper_has_a_value_model_of_its_own_warmed_up_for_ten_batches() -> None:
    options = paper_options()
    assert (options.critic, options.critic_warmup_batches) == ("separate", 10)
    assert (options.eps_low, options.eps_high) == (0.3, 5.0)


def test_the_page_on_recipes_says_how_to_ask_for_the_papers_options(tmp_path: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [text for text in examples if "critic" in text]
    file = tmp_path / "serve.yaml"
    file.write_text(example, encoding="utf-8")
    (scenario,) = scenarios_of(load_settings(file).settings)
    assert scenario.options == paper_options()


@pytest.mark.parametrize("alone", [{"eps_low": 0.3}, {"eps_high": 5.0}])
def test_one_epsilon_without_the_other_is_refused(alone: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="eps_low and eps_high together"):
        SAOOptions.model_validate(alone)


def test_both_epsilons_together_are_accepted() -> None:
    assert SAOOptions(eps_low=CODING[0], eps_high=CODING[1]).eps_high == 3.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"critic": "none"},
        {"lambda_alpha": 0},
        {"gamma": 1.1},
        {"lambda_alpha": float("inf")},
        {"eps_low": 1.1, "eps_high": 5.0},
        {"feedback_scores": {"bad": float("nan")}},
        {"feedback_scores": {" Bad": 0.0, "bad": 1.0}},
        {"feedback_scores": {" ": 0.0}},
        {"batch_tokens_max": 2_000, "sample_tokens_max": 2_048},
    ],
)
def test_options_without_a_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SAOOptions.model_validate(wrong)


@given(st.floats(-1e6, 1e6))
def test_a_score_is_the_reward_whatever_the_text(score: float) -> None:
    recipe = sao(feedback_scores={"wrong answer": 0.25})
    assert recipe.reward(a_report(score=score, feedback="wrong answer")) == score


@pytest.mark.parametrize(
    ("feedback", "reward"),
    [
        ("wrong answer", 0.0),
        ("  Wrong ANSWER\n", 0.0),
        ("good", 1.0),
        ("wrong answer!", None),
        ("wrong  answer", None),
        ("", None),
        (None, None),
        ({"text": "good"}, None),
        (["good"], None),
    ],
)
def test_without_a_score_the_exact_text_counts(feedback: Any, reward: float | None) -> None:
    recipe = sao(feedback_scores={" Wrong answer": 0.0, "GOOD": 1.0})
    assert recipe.reward(a_report(feedback=feedback)) == reward


def test_a_score_that_is_no_number_is_no_reward() -> None:
    assert sao().reward(a_report(score=float("nan"))) is None


@pytest.mark.parametrize("group", [None, "maths-7"])
def test_a_group_comes_from_the_report_only(group: str | None) -> None:
    assert sao().group(an_experience_assembled(group=group)) == group


@given(st.integers(1, 6), st.integers(0, 12))
def test_the_oldest_are_taken_as_soon_as_a_batch_is_full(batch_size: int, num_pending: int) -> None:
    pending = [a_pending(n) for n in range(num_pending)]
    expected = [one.experience_id for one in pending[:batch_size]] if num_pending >= batch_size else []
    assert list(sao(batch_size=batch_size).select(pending, 3)) == expected


def test_a_group_is_never_torn_apart() -> None:
    groups = ["a", None, "b", "a", "b", None]
    pending = [a_pending(n, group=group) for n, group in enumerate(groups)]
    assert sao(batch_size=2).select(pending, 0) == ("e0", "e3")
    assert sao(batch_size=4).select(pending, 0) == ("e0", "e3", "e1", "e2", "e4")


groups_and_sizes = st.lists(
    st.tuples(st.none() | st.sampled_from("abc"), st.integers(2, 40)), min_size=1, max_size=15
)


@given(groups_and_sizes, st.integers(1, 5))
def test_a_batch_holds_whole_groups_and_fits_its_tokens(
    groups_sizes: list[tuple[str | None, int]], batch_size: int
) -> None:
    pending = [a_pending(n, group=group, num_tokens=size) for n, (group, size) in enumerate(groups_sizes)]
    recipe = sao(batch_size=batch_size, batch_tokens_max=40, sample_tokens_max=40)
    chosen = [one for one in pending if one.experience_id in recipe.select(pending, 0)]
    groups = {one.group for one in chosen if one.group is not None}
    assert all(one in chosen for one in pending if one.group in groups)
    units = len(groups) + sum(one.group is None for one in chosen)
    assert sum(one.num_tokens for one in chosen) <= 40 or units == 1
    is_full = len(pending) >= batch_size or sum(one.num_tokens for one in pending) >= 40
    assert bool(chosen) == is_full


def test_a_batch_is_full_when_the_next_would_not_fit() -> None:
    recipe = sao(batch_size=10, batch_tokens_max=25, sample_tokens_max=20)
    assert recipe.select([a_pending(0), a_pending(1)], 0) == ()
    assert recipe.select([a_pending(0), a_pending(1), a_pending(2)], 0) == ("e0", "e1")
    assert recipe.select([a_pending(0), a_pending(1, num_tokens=15)], 0) == ("e0", "e1")


def test_one_that_is_too_large_for_any_batch_goes_alone_and_blocks_nobody() -> None:
    recipe = sao(batch_size=10, batch_tokens_max=25, sample_tokens_max=20)
    assert recipe.select([a_pending(0, num_tokens=99), a_pending(1)], 0) == ("e0",)
