"""Pure: what any recipe must do, whoever wrote it. Run each of RECIPE_CHECKS on a recipe's dotted path.

In a test of your own:

    @pytest.mark.parametrize("check", RECIPE_CHECKS, ids=lambda check: check.__name__)
    def test_my_recipe_keeps_the_contract(check: RecipeCheck) -> None:
        check("my_package.recipe:MyRecipe")
"""

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.canonical import canonical
from schemas.events import ArtifactKind, OutcomeReason
from schemas.ids import ExperienceId
from schemas.recipe import Pending, Recipe, RecipeOptions, Report, load_recipe
from tests.builders import an_experience_assembled

RecipeCheck = Callable[[str], None]
ROOT = Path(__file__).parents[1]
IMPORT_DEADLINE_S = 60.0
BATCH_SIZE = 3
NUM_PENDING_MAX = 12
FRAMEWORKS = ("torch", "transformers", "faust", "aiokafka")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
reports = st.builds(
    Report,
    score=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    feedback=json_values,
    metadata=st.dictionaries(st.text(max_size=5), json_values, max_size=3),
)
waiting = st.builds(
    Pending,
    experience_id=st.just(ExperienceId("")),
    reward=st.floats(-1, 1),
    group=st.none() | st.sampled_from(["a", "b", "c"]),
    num_tokens=st.integers(2, 2_048),
    num_action_tokens=st.integers(1, 2),
)


def small(path: str) -> Recipe:
    """Make the recipe with batches that a short list can fill."""
    recipe = load_recipe(path)
    return recipe(recipe.options_type(batch_size=BATCH_SIZE))


def numbered(pending: list[Pending], prefix: str) -> tuple[Pending, ...]:
    """Give each experience an id of its own."""
    return tuple(replace(one, experience_id=ExperienceId(f"{prefix}{n}")) for n, one in enumerate(pending))


def import_pulls_in_no_framework(path: str) -> None:
    """The folds load a recipe, and a fold has no tensors."""
    words = f"from schemas.recipe import load_recipe; load_recipe({path!r}); import sys; "
    words += f"found = set({FRAMEWORKS!r}) & set(sys.modules); sys.exit(' '.join(sorted(found)) or 0)"
    done = subprocess.run(
        [sys.executable, "-c", words],
        capture_output=True,
        check=False,
        cwd=ROOT,
        timeout=IMPORT_DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr.decode()


def declarations_are_complete(path: str) -> None:
    """What services read from the class is there and has the right form."""
    recipe = load_recipe(path)
    assert isinstance(recipe.kind, ArtifactKind)
    assert recipe.kind is not ArtifactKind.UNSPECIFIED
    assert all(isinstance(reason, OutcomeReason) for reason in recipe.corrects)
    assert recipe.objective == "" or ":" in recipe.objective
    assert recipe.evaluation == {} or {"module", "config"} == set(recipe.evaluation)
    assert recipe.report.num_references_min >= 0


def options_are_frozen_exact_and_described(path: str) -> None:
    """Options are read from a file and from the log: a typo must not pass, a value must not change."""
    options_type = load_recipe(path).options_type
    assert issubclass(options_type, RecipeOptions)
    options = options_type()
    with pytest.raises(ValidationError):
        options_type.model_validate({"no_such_option": 1})
    with pytest.raises(ValidationError):
        options.batch_size = 2  # type: ignore[misc] # that it is frozen is what is tested
    undescribed = [name for name, field in options_type.model_fields.items() if not field.description]
    assert undescribed == []


def options_survive_the_log(path: str) -> None:
    """ScenarioConfigured carries them as canonical JSON."""
    options_type = load_recipe(path).options_type
    options = options_type(batch_size=BATCH_SIZE)
    assert options_type.model_validate_json(canonical(options.model_dump(mode="json"))) == options


def reward_is_finite_or_none(path: str) -> None:
    """Whatever people report, a fold stores a number or nothing, and the same each time."""
    recipe = small(path)

    @given(reports)
    def holds(report: Report) -> None:
        reward = recipe.reward(report)
        assert reward is None or (isinstance(reward, float | int) and math.isfinite(reward))
        assert recipe.reward(report) == reward

    holds()


def group_is_named_or_none(path: str) -> None:
    """A group is a name, the same each time."""
    recipe = small(path)
    for group in (None, "a"):
        experience = an_experience_assembled(group=group)
        named = recipe.group(experience)
        assert named is None or isinstance(named, str)
        assert recipe.group(experience) == named


def selection_is_made_of_what_waits(path: str) -> None:
    """A batch holds waiting experiences, each once, and the same choice is made again in a replay."""
    recipe = small(path)

    @given(st.lists(waiting, max_size=NUM_PENDING_MAX), st.integers(0, 100))
    def holds(pending: list[Pending], head_seq: int) -> None:
        named = numbered(pending, "e")
        chosen = recipe.select(named, head_seq)
        assert isinstance(chosen, tuple)
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= {one.experience_id for one in named}
        assert small(path).select(list(named), head_seq) == chosen

    holds()


def selection_looks_at_contents_not_at_ids(path: str) -> None:
    """Equal experiences may change places: the choice falls on the same places."""
    recipe = small(path)

    @given(st.lists(waiting, max_size=NUM_PENDING_MAX))
    def holds(pending: list[Pending]) -> None:
        places = [
            sorted(int(chosen.removeprefix(prefix)) for chosen in recipe.select(numbered(pending, prefix), 0))
            for prefix in ("e", "z")
        ]
        assert places[0] == places[1]

    holds()


def selection_comes_to_an_end(path: str) -> None:
    """When each batch is taken away, little is left waiting: nothing blocks the line for ever."""
    recipe = small(path)

    @settings(suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(waiting.map(lambda one: replace(one, group=None)), min_size=4 * BATCH_SIZE, max_size=20))
    def holds(pending: list[Pending]) -> None:
        left = numbered(pending, "e")
        num_batches = 0
        while chosen := set(recipe.select(left, 0)):
            left = tuple(one for one in left if one.experience_id not in chosen)
            num_batches += 1
        assert num_batches > 0
        assert len(left) < BATCH_SIZE

    holds()


RECIPE_CHECKS: tuple[RecipeCheck, ...] = (
    import_pulls_in_no_framework,
    declarations_are_complete,
    options_are_frozen_exact_and_described,
    options_survive_the_log,
    reward_is_finite_or_none,
    group_is_named_or_none,
    selection_is_made_of_what_waits,
    selection_looks_at_contents_not_at_ids,
    selection_comes_to_an_end,
)
"""All that is asked of a recipe."""
