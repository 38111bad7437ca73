"""Pure: what an evaluator is, and the verdict that follows from what it measured.

An evaluator of one's own is any importable class of this shape: `Name(config).evaluate(subject)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from release.head import Evaluated
from schemas.errors import RejectedError
from schemas.events import ArtifactKind, Verdict, VerdictReason
from schemas.ids import Sha256

Publish = Literal["auto", "review"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """An artifact that can be evaluated."""

    kind: ArtifactKind
    """What it consists of."""
    folder: Path
    """Its files, or the base model's."""
    content_sha256: Sha256
    """Its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What an evaluator looks at."""

    candidate: Content
    """What may be published."""
    incumbent: Content
    """What it would replace."""
    model_folder: Path
    """The base model, complete."""
    metrics: Mapping[str, float]
    """Of the candidate's training step."""
    device: Literal["cpu", "cuda"]
    """Where to compute."""
    engine: str | None
    """Address of an engine where adapters can be loaded beside what it serves."""
    incumbent_scores: Mapping[str, float] | None
    """What this evaluator measured of the incumbent before, if it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an evaluator found."""

    reasons: tuple[VerdictReason, ...] = ()
    """Why the candidate must not be published; empty when it may."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the candidate."""
    baseline_metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the incumbent."""

    @property
    def evaluated(self) -> Evaluated:
        """What the chain keeps of it."""
        return Evaluated(metrics=self.metrics, baseline_metrics=self.baseline_metrics)


class Evaluator(Protocol):
    """Judges candidates. It runs in a child process and has a deadline; whatever it raises is a refusal."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take `evaluation.config`."""

    def evaluate(self, subject: Subject) -> Measured:
        """Measure a candidate beside the incumbent."""


def verdict_of(measured: Measured, publish: Publish) -> Verdict:
    """What becomes of a candidate that passed the gate."""
    if measured.reasons:
        return Verdict.REJECTED
    return Verdict.HELD if publish == "review" else Verdict.ACCEPTED


class Bounds(BaseModel):
    """Limits of one metric, both included."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    min: float | None = Field(None, description="least value that passes")
    max: float | None = Field(None, description="greatest value that passes")

    def hold(self, value: float | None) -> bool:
        """Whether a value is inside; one that is missing is not."""
        return value is not None and not self._is_outside(value)

    def _is_outside(self, value: float) -> bool:
        return (self.min is not None and not value >= self.min) or (
            self.max is not None and not value <= self.max
        )


_BOUNDS: TypeAdapter[dict[str, Bounds]] = TypeAdapter(dict[str, Bounds])


def read_bounds(config: Mapping[str, Any]) -> Mapping[str, Bounds]:
    """Read the limits of `metric_bounds`. Raises RejectedError."""
    try:
        return _BOUNDS.validate_python(dict(config))
    except ValidationError as error:
        raise RejectedError(
            "expected evaluation.config of metric_bounds as metric: {min, max}, got "
            f"{error.errors()[0]['msg']}: correct it",
            reason="configuration",
        ) from error


def judge_metrics(bounds: Mapping[str, Bounds], metrics: Mapping[str, float]) -> Measured:
    """Refuse a candidate whose training step left a limit. Without limits every candidate passes."""
    judged = {name: metrics[name] for name in bounds if name in metrics}
    is_inside = all(limit.hold(metrics.get(name)) for name, limit in bounds.items())
    return Measured(reasons=() if is_inside else (VerdictReason.METRIC_OUT_OF_BOUNDS,), metrics=judged)
