"""Recipes as small as the folds' tests need them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from schemas.events import ArtifactKind, ExperienceAssembled, OutcomeReason
from schemas.ids import ExperienceId
from schemas.recipe import Pending, Recipe, RecipeOptions, Report, ReportSchema


class ScoreRecipe:
    """The score is the reward; a batch is the oldest `batch_size`, or a whole group."""

    options_type: ClassVar[type[RecipeOptions]] = RecipeOptions
    report: ClassVar[ReportSchema] = ReportSchema()
    kind: ClassVar[ArtifactKind] = ArtifactKind.CHECKPOINT
    corrects: ClassVar[frozenset[OutcomeReason]] = frozenset()
    objective: ClassVar[str] = ""
    evaluation: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, options: RecipeOptions) -> None:
        self.options = options

    def reward(self, report: Report) -> float | None:
        return report.score

    def group(self, experience: ExperienceAssembled) -> str | None:
        return None

    def select(self, pending: Sequence[Pending], head_seq: int) -> tuple[ExperienceId, ...]:
        size = self.options.batch_size
        if len(pending) < size:
            return ()
        return tuple(each.experience_id for each in pending[:size])


class CorrectingRecipe(ScoreRecipe):
    """Learns from narrowed sampling and broken answers too."""

    corrects = frozenset(
        {OutcomeReason.SAMPLING_TRUNCATED, OutcomeReason.GREEDY, OutcomeReason.CLIENT_ABORTED}
    )


class StrictRecipe(ScoreRecipe):
    """Wants a score and a task."""

    report = ReportSchema(is_score_required=True, required_metadata=("task",))


class GroupRecipe(ScoreRecipe):
    """A batch is a complete group of `batch_size`, the oldest first."""

    def select(self, pending: Sequence[Pending], head_seq: int) -> tuple[ExperienceId, ...]:
        groups: dict[str, list[ExperienceId]] = {}
        for each in pending:
            if each.group is not None:
                groups.setdefault(each.group, []).append(each.experience_id)
        whole = [ids for ids in groups.values() if len(ids) >= self.options.batch_size]
        return tuple(whole[0][: self.options.batch_size]) if whole else ()


RECIPES: Mapping[str, type[Recipe]] = {
    "score": ScoreRecipe,
    "correcting": CorrectingRecipe,
    "strict": StrictRecipe,
    "group": GroupRecipe,
}


def load(path: str) -> type[Recipe]:
    return RECIPES[path]
