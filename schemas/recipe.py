"""Pure: what a learning method must offer: a recipe decides what is learned from, an objective how.

Not a base class: any class of this shape, importable by dotted path, is a recipe. docs/recipes.md shows one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from schemas.canonical import canonical_sha256
from schemas.errors import RejectedError
from schemas.events import ArtifactKind, ExperienceAssembled, OutcomeReason
from schemas.ids import ExperienceId, Sha256

Credit = Literal["turn", "session"]
"""`turn`: only quoted calls are credited; `session`: all the session's turns up to the quoted one."""


class RecipeOptions(BaseModel):
    """Options that the folds read; a recipe's own options extend them. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = Field(16, ge=1, le=65_536, description="experiences in a batch")
    max_staleness: int = Field(0, ge=0, description="published versions a sample may lie behind")
    credit: Credit = Field("turn", description="what a report credits")
    realign_threshold: int = Field(0, ge=0, description="re-rendered tail tokens accepted within a merge")
    sample_tokens_max: int = Field(2_048, ge=2, description="longest sample; a longer one is too_long")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSchema:
    """What a report must hold for this recipe to learn from it."""

    is_score_required: bool = False
    """Refuse reports without a score."""
    num_references_min: int = 1
    """Calls that a report must quote."""
    required_metadata: tuple[str, ...] = ()
    """Keys that `metadata` must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report as a recipe sees it, its JSON parsed."""

    score: float | None
    """As reported."""
    feedback: Any
    """Text or object, as reported; None when absent."""
    metadata: Mapping[str, Any]
    """As reported; empty when absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An experience that waits for a batch, as a recipe sees it."""

    experience_id: ExperienceId
    """Its id."""
    reward: float
    """As the recipe read it."""
    group: str | None
    """As the recipe or the report set it."""
    num_tokens: int
    """All tokens."""
    num_action_tokens: int
    """Tokens with mask 1."""


class Recipe(Protocol):
    """A method of learning without its tensors."""

    options_type: ClassVar[type[RecipeOptions]]
    """What `reef:` in serve.yaml may set."""
    report: ClassVar[ReportSchema]
    """The feedback it needs."""
    kind: ClassVar[ArtifactKind]
    """What it produces by default."""
    corrects: ClassVar[frozenset[OutcomeReason]]
    """Untrainable reasons that its mathematics can handle."""
    objective: ClassVar[str]
    """Dotted path of its `schemas.objective.Objective`; empty when it trains no weights."""
    evaluation: ClassVar[Mapping[str, Any]]
    """Default `evaluation` section: `{module, config}`."""
    options: RecipeOptions
    """As configured."""

    def __init__(self, options: Any) -> None:
        """Take validated options of `options_type`."""

    def reward(self, report: Report) -> float | None:
        """Read a finite reward from a report; None when it holds none."""

    def group(self, experience: ExperienceAssembled) -> str | None:
        """Name the group an experience belongs to; None when the method compares nothing."""

    def select(self, pending: Sequence[Pending], head_seq: int) -> tuple[ExperienceId, ...]:
        """Choose the next batch among what waits, oldest first; empty to wait for more."""


def load_recipe(path: str) -> type[Recipe]:
    """Import a recipe by its dotted path `package.module:Class`. Raises RejectedError."""
    found = load_object(path)
    missing = [name for name in _RECIPE_NAMES if not hasattr(found, name)]
    if missing:
        raise RejectedError(
            f"expected {path} to be a recipe, got one without {', '.join(missing)}: see docs/recipes.md",
            reason="bad_recipe",
        )
    recipe: type[Recipe] = found
    return recipe


def recipe_digest(recipe_path: str, options: Mapping[str, Any]) -> Sha256:
    """Digest a recipe's path and options, however the options were ordered. Raises RejectedError."""
    return canonical_sha256({"recipe": recipe_path, "options": dict(options)})


_RECIPE_NAMES = (
    "options_type",
    "report",
    "kind",
    "corrects",
    "objective",
    "evaluation",
    "reward",
    "group",
    "select",
)


def load_object(path: str) -> Any:
    """Import an object by its dotted path `package.module:name`. Raises RejectedError."""
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise RejectedError(f"expected a path like package.module:Name, got {path!r}", reason="bad_path")
    try:
        return getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise RejectedError(
            f"expected {path!r} to be importable, got {error}: install the package or correct the path",
            reason="bad_path",
        ) from error
