"""Limits on metrics, and the verdict that follows."""

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from release.evaluation import Measured, judge_metrics, read_bounds, verdict_of
from release.settings import evaluation_choice
from schemas.errors import RejectedError
from schemas.events import Verdict, VerdictReason
from schemas.settings import EvaluationSettings

SAO = "recipes.sao.recipe:SAORecipe"
OUT = (VerdictReason.METRIC_OUT_OF_BOUNDS,)


@given(st.floats(-10, 10), st.none() | st.floats(-10, 10), st.none() | st.floats(-10, 10))
def test_a_metric_passes_exactly_inside_its_limits(
    value: float, least: float | None, greatest: float | None
) -> None:
    bounds = read_bounds({"loss": {"min": least, "max": greatest}})
    is_inside = (least is None or value >= least) and (greatest is None or value <= greatest)
    measured = judge_metrics(bounds, {"loss": value, "other": 99.0})
    assert measured.reasons == (() if is_inside else OUT)
    assert measured.metrics == {"loss": value}


def test_a_metric_that_is_missing_or_no_number_is_outside() -> None:
    bounds = read_bounds({"loss": {"max": 1.0}})
    assert judge_metrics(bounds, {}).reasons == OUT
    assert judge_metrics(bounds, {"loss": nan}).reasons == OUT


def test_without_limits_every_candidate_passes() -> None:
    assert judge_metrics(read_bounds({}), {"loss": 1e9}) == Measured()


@pytest.mark.parametrize("config", [{"loss": 3}, {"loss": {"maximum": 3}}, {"loss": {"max": "much"}}])
def test_limits_that_cannot_be_understood_are_refused(config: dict[str, object]) -> None:
    with pytest.raises(RejectedError, match="metric_bounds"):
        read_bounds(config)


@pytest.mark.parametrize(
    ("reasons", "publish", "verdict"),
    [
        ((), "auto", Verdict.ACCEPTED),
        ((), "review", Verdict.HELD),
        (OUT, "auto", Verdict.REJECTED),
        (OUT, "review", Verdict.REJECTED),
    ],
)
def test_a_review_holds_what_would_be_accepted_and_nothing_else(
    reasons: tuple[VerdictReason, ...], publish: str, verdict: Verdict
) -> None:
    assert verdict_of(Measured(reasons=reasons), "auto" if publish == "auto" else "review") is verdict


def test_the_recipes_own_evaluator_counts_unless_another_is_configured() -> None:
    own = evaluation_choice(EvaluationSettings(config={"loss": {"max": 2.0}}), SAO)
    assert (own.module, own.config) == ("metric_bounds", {"loss": {"max": 2.0}})
    other = evaluation_choice(EvaluationSettings(module="prompt_set", publish="review"), SAO)
    assert (other.module, other.config, other.publish) == ("prompt_set", {}, "review")
