"""Pure: SAO (arXiv 2607.07508), the half that decides: what counts as a reward, and when a batch is full.

Not the mathematics: recipes/sao/objective.py has the loss. Nothing here knows a tensor.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from schemas.events import ArtifactKind, ExperienceAssembled, OutcomeReason
from schemas.ids import ExperienceId
from schemas.recipe import Pending, RecipeOptions, Report, ReportSchema

REASONING = (0.3, 5.0)
"""eps_low and eps_high of the paper for reasoning; the default."""
CODING = (0.8, 3.0)
"""eps_low and eps_high of the paper for coding."""
FEEDBACK_SCORES_MAX = 1_000

Finite = Annotated[float, Field(allow_inf_nan=False)]


class SAOOptions(RecipeOptions):
    """What `reef:` may set for SAO. eps_low and eps_high are one choice and are given together."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    feedback_scores: Annotated[Mapping[str, Finite], Field(max_length=FEEDBACK_SCORES_MAX)] = Field(
        default_factory=dict, description="reward of a feedback text when no score is given; case is ignored"
    )
    eps_low: float = Field(REASONING[0], gt=0, le=1, description="ratios at or below 1 - eps_low are dropped")
    eps_high: float = Field(REASONING[1], gt=0, description="ratios at or above 1 + eps_high are dropped")
    critic: Literal["head", "separate"] = Field(
        "head", description="a value head on the actor, or a value model of its own"
    )
    critic_steps_per_actor: int = Field(2, ge=1, le=100, description="critic updates per actor update")
    critic_warmup_batches: int = Field(0, ge=0, description="first batches that train the critic only")
    lambda_alpha: float = Field(1.5, gt=0, description="alpha in lambda = 1 - 1 / (alpha x action tokens)")
    gamma: float = Field(1.0, gt=0, le=1, description="discount")
    batch_tokens_max: int | None = Field(
        None, ge=2, description="a batch is full at this many tokens, too; empty: by count only"
    )

    @field_validator("feedback_scores")
    @classmethod
    def _by_plain_text(cls, scores: Mapping[str, float]) -> dict[str, float]:
        plain = {plain_text(text): score for text, score in scores.items()}
        if len(plain) < len(scores) or "" in plain:
            raise ValueError("expected texts that differ in more than case and outer blanks, and none empty")
        return dict(sorted(plain.items()))

    @model_validator(mode="after")
    def _both_eps(self) -> Self:
        if len({"eps_low", "eps_high"} & self.model_fields_set) == 1:
            raise ValueError(
                "expected eps_low and eps_high together, got one of them: "
                f"give both, such as {REASONING[0]} and {REASONING[1]} or {CODING[0]} and {CODING[1]}"
            )
        return self

    @model_validator(mode="after")
    def _a_sample_fits_a_batch(self) -> Self:
        if self.batch_tokens_max is not None and self.batch_tokens_max < self.sample_tokens_max:
            raise ValueError(
                f"expected batch_tokens_max >= sample_tokens_max = {self.sample_tokens_max}, "
                f"got {self.batch_tokens_max}: raise it, or the longest sample would fit no batch"
            )
        return self


def plain_text(text: str) -> str:
    """Give a feedback text as it is compared."""
    return text.strip().lower()


def paper_options() -> SAOOptions:
    """Give the paper's own settings: a value model of its own, warmed up for ten batches."""
    return SAOOptions(
        eps_low=REASONING[0], eps_high=REASONING[1], critic="separate", critic_warmup_batches=10
    )


class SAORecipe:
    """Single-rollout asynchronous optimisation: every reported call is a sample of its own."""

    options_type: ClassVar[type[RecipeOptions]] = SAOOptions
    report: ClassVar[ReportSchema] = ReportSchema()
    kind: ClassVar[ArtifactKind] = ArtifactKind.CHECKPOINT
    corrects: ClassVar[frozenset[OutcomeReason]] = frozenset()
    objective: ClassVar[str] = "recipes.sao.objective:SAOObjective"
    evaluation: ClassVar[Mapping[str, Any]] = {"module": "metric_bounds", "config": {}}

    def __init__(self, options: SAOOptions) -> None:
        """Keep the options."""
        self.options: RecipeOptions = options
        self._options = options

    def reward(self, report: Report) -> float | None:
        """Take the score, or else what the options say of the feedback's text."""
        if report.score is not None:
            return report.score if math.isfinite(report.score) else None
        if isinstance(report.feedback, str):
            return self._options.feedback_scores.get(plain_text(report.feedback))
        return None

    def group(self, experience: ExperienceAssembled) -> str | None:
        """Compare nothing: only `metadata.group`, which the fold has set already, makes a group."""
        return experience.group

    def select(self, pending: Sequence[Pending], head_seq: int) -> tuple[ExperienceId, ...]:
        """Take the oldest that fill a batch by count or by tokens, groups whole; wait while they do not."""
        chosen: list[Pending] = []
        for unit in _units(pending):
            if chosen and not self._fits([*chosen, *unit]):
                return _ids(chosen)
            chosen += unit
            if len(chosen) >= self._options.batch_size or not self._has_room(chosen):
                return _ids(chosen)
        return ()

    def _fits(self, experiences: Sequence[Pending]) -> bool:
        limit = self._options.batch_tokens_max
        return limit is None or _num_tokens(experiences) <= limit

    def _has_room(self, experiences: Sequence[Pending]) -> bool:
        limit = self._options.batch_tokens_max
        return limit is None or _num_tokens(experiences) < limit


def _units(pending: Sequence[Pending]) -> list[list[Pending]]:
    """Put what shares a group together, where its oldest stands: a group is never torn apart."""
    units: dict[tuple[str, str], list[Pending]] = {}
    for experience in pending:
        key = ("alone", experience.experience_id) if experience.group is None else ("group", experience.group)
        units.setdefault(key, []).append(experience)
    return list(units.values())


def _num_tokens(experiences: Sequence[Pending]) -> int:
    return sum(experience.num_tokens for experience in experiences)


def _ids(experiences: Sequence[Pending]) -> tuple[ExperienceId, ...]:
    return tuple(experience.experience_id for experience in experiences)
