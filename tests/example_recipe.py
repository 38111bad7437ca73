"""Pure: the smallest recipe: thumbs are rewards, and the oldest fill a batch. It trains no weights."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from schemas.events import ArtifactKind, ExperienceAssembled, OutcomeReason
from schemas.ids import ExperienceId
from schemas.recipe import Pending, RecipeOptions, Report, ReportSchema


class ThumbsOptions(RecipeOptions):
    """One option beside the common ones."""

    thumb: float = Field(1.0, description="reward of a thumb up")


class ThumbsRecipe:
    """Learns from thumbs."""

    options_type: ClassVar[type[RecipeOptions]] = ThumbsOptions
    report: ClassVar[ReportSchema] = ReportSchema(required_metadata=("thumb",))
    kind: ClassVar[ArtifactKind] = ArtifactKind.HARNESS
    corrects: ClassVar[frozenset[OutcomeReason]] = frozenset({OutcomeReason.GREEDY})
    objective: ClassVar[str] = ""
    evaluation: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, options: ThumbsOptions) -> None:
        self.options: RecipeOptions = options
        self._thumb = options.thumb

    def reward(self, report: Report) -> float | None:
        return {"up": self._thumb, "down": 0.0}.get(str(report.metadata.get("thumb")))

    def group(self, experience: ExperienceAssembled) -> str | None:
        return experience.session

    def select(self, pending: Sequence[Pending], head_seq: int) -> tuple[ExperienceId, ...]:
        if len(pending) < self.options.batch_size:
            return ()
        return tuple(one.experience_id for one in pending[: self.options.batch_size])
