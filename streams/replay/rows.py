"""Pure: what a replay writes down, event by event, as rows of tables: one kind of event, one table.

Order of columns is part of the files' bytes. Not the writing: streams/replay/tables.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

from schemas.events import (
    BatchSealed,
    Event,
    ExperienceAssembled,
    ExperienceRevised,
    ExperienceWithdrawn,
    OutcomeSettled,
    TrainingSample,
)


class Kind(StrEnum):
    """How a column is kept."""

    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"
    TEXTS = "texts"
    TOKENS = "tokens"
    """Packed `<u4`."""
    REALS = "reals"
    """Packed `<f4`."""
    BITS = "bits"
    """Packed `u1`."""


Row = tuple[Any, ...]
"""Values by column: None where there is none; packed arrays as their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """A table."""

    name: str
    """Of its folder."""
    columns: Mapping[str, Kind]
    """In order."""
    row_of: Callable[[Any], Row]
    """Take an event's row."""


_EXPERIENCE: Mapping[str, Kind] = {
    "experience_id": Kind.TEXT,
    "session": Kind.TEXT,
    "token_ids": Kind.TOKENS,
    "loss_mask": Kind.BITS,
    "logprobs": Kind.REALS,
    "temperatures": Kind.REALS,
    "num_prompt_tokens": Kind.WHOLE,
    "num_realigned_tokens": Kind.WHOLE,
    "reward": Kind.REAL,
    "feedback": Kind.TEXT,
    "release_seq_first": Kind.WHOLE,
    "release_seq_last": Kind.WHOLE,
    "receipts": Kind.TEXTS,
    "report_ids": Kind.TEXTS,
    "group": Kind.TEXT,
    "tokenizer_digest": Kind.TEXT,
    "source_partition": Kind.WHOLE,
    "source_offset": Kind.WHOLE,
    "source_index": Kind.WHOLE,
    "assembled_at_us": Kind.WHOLE,
}


_values = attrgetter(*[name.replace("source_", "source.") for name in _EXPERIENCE])
_FEEDBACK_AT = list(_EXPERIENCE).index("feedback")


def _of_experience(event: ExperienceAssembled) -> Row:
    values: Row = _values(event)
    if event.feedback is None:
        return values
    return (*values[:_FEEDBACK_AT], event.feedback.decode(), *values[_FEEDBACK_AT + 1 :])


def _of_sample(event: TrainingSample) -> Row:
    return (event.scenario, event.batch_id, event.index, *_of_experience(event.experience))


def _of_correction(event: ExperienceRevised | ExperienceWithdrawn) -> Row:
    if isinstance(event, ExperienceWithdrawn):
        told: Row = ("withdrawn", None, None, event.report_id, event.withdrawn_at_us)
    else:
        feedback = None if event.feedback is None else event.feedback.decode()
        told = ("revised", event.reward, feedback, event.report_id, event.revised_at_us)
    return (event.scenario, event.experience_id, event.receipts, *told)


_BATCH: Mapping[str, Kind] = {
    "scenario": Kind.TEXT,
    "batch_id": Kind.TEXT,
    "batch_seq": Kind.WHOLE,
    "recipe": Kind.TEXT,
    "recipe_digest": Kind.TEXT,
    "base_release_id": Kind.TEXT,
    "base_release_seq": Kind.WHOLE,
    "base_content_sha256": Kind.TEXT,
    "experience_ids": Kind.TEXTS,
    "content_sha256": Kind.TEXT,
    "sealed_at_us": Kind.WHOLE,
}
_OUTCOME: Mapping[str, Kind] = {
    "scenario": Kind.TEXT,
    "receipt": Kind.TEXT,
    "state": Kind.TEXT,
    "reason": Kind.TEXT,
    "notes": Kind.TEXTS,
    "experience_id": Kind.TEXT,
    "batch_id": Kind.TEXT,
    "release_id": Kind.TEXT,
    "settled_at_us": Kind.WHOLE,
}

EXPERIENCES = TableForm(
    name="experiences",
    columns={"scenario": Kind.TEXT, **_EXPERIENCE},
    row_of=lambda event: (event.scenario, *_of_experience(event)),
)
CORRECTIONS = TableForm(
    name="corrections",
    columns={
        "scenario": Kind.TEXT,
        "experience_id": Kind.TEXT,
        "receipts": Kind.TEXTS,
        "what": Kind.TEXT,
        "reward": Kind.REAL,
        "feedback": Kind.TEXT,
        "report_id": Kind.TEXT,
        "at_us": Kind.WHOLE,
    },
    row_of=_of_correction,
)
SAMPLES = TableForm(
    name="samples",
    columns={"scenario": Kind.TEXT, "batch_id": Kind.TEXT, "index": Kind.WHOLE, **_EXPERIENCE},
    row_of=_of_sample,
)
BATCHES = TableForm(
    name="batches", columns=_BATCH, row_of=lambda event: tuple([getattr(event, name) for name in _BATCH])
)
OUTCOMES = TableForm(
    name="outcomes",
    columns=_OUTCOME,
    row_of=lambda event: tuple([getattr(event, name) for name in _OUTCOME]),
)
BEFORE_RANGE = TableForm(
    name="before_range",
    columns={
        "what": Kind.TEXT,
        "id": Kind.TEXT,
        "refers_to": Kind.TEXT,
        "topic": Kind.TEXT,
        "partition": Kind.WHOLE,
        "offset": Kind.WHOLE,
    },
    row_of=tuple,
)
"""What refers to what lies before the range, and so found nothing (STREAMS 29)."""

TABLES: Mapping[type[Event], TableForm] = {
    ExperienceAssembled: EXPERIENCES,
    ExperienceRevised: CORRECTIONS,
    ExperienceWithdrawn: CORRECTIONS,
    TrainingSample: SAMPLES,
    BatchSealed: BATCHES,
    OutcomeSettled: OUTCOMES,
}
"""Where each kind of event goes; others are told to folds only."""
