"""Pure: REINFORCE, the half that decides: the score is the reward, and a batch is full by count.

Not the mathematics: recipes/reinforce/objective.py has the loss.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from schemas.events import ArtifactKind, ExperienceAssembled, OutcomeReason
from schemas.ids import ExperienceId
from schemas.recipe import Pending, RecipeOptions, Report, ReportSchema


class ReinforceRecipe:
    """Every reported call is a sample; what it is worth shows beside the mean of its batch."""

    options_type: ClassVar[type[RecipeOptions]] = RecipeOptions
    report: ClassVar[ReportSchema] = ReportSchema(is_score_required=True)
    kind: ClassVar[ArtifactKind] = ArtifactKind.CHECKPOINT
    corrects: ClassVar[frozenset[OutcomeReason]] = frozenset()
    objective: ClassVar[str] = "recipes.reinforce.objective:ReinforceObjective"
    evaluation: ClassVar[Mapping[str, Any]] = {"module": "metric_bounds", "config": {}}

    def __init__(self, options: RecipeOptions) -> None:
        """Keep the options."""
        self.options = options

    def reward(self, report: Report) -> float | None:
        """Take the score."""
        return report.score if report.score is not None and math.isfinite(report.score) else None

    def group(self, experience: ExperienceAssembled) -> str | None:
        """Compare within the batch; a group that the report named stays."""
        return experience.group

    def select(self, pending: Sequence[Pending], head_seq: int) -> tuple[ExperienceId, ...]:
        """Take the oldest once there are enough."""
        size = self.options.batch_size
        return tuple(one.experience_id for one in pending[:size]) if len(pending) >= size else ()
