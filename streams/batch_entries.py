"""Pure: what the batch fold remembers, as JSON: one entry an experience, small ones a scenario.

References and labels only: an experience's tokens stay in the log until its batch is sealed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from schemas.events import ExperienceAssembled, OutcomeReason, OutcomeState
from schemas.ids import BatchId, CandidateId, ExperienceId, Receipt, ReleaseId, ReportId, ScenarioName, Sha256
from schemas.recipe import Pending
from streams.lineage import Node

VERSION = 1
"""Of the batch fold: entries of another version are not read; `reef streams --rebuild` makes them anew."""
SAMPLE, HEAD, PROGRESS, NODE, HELD, ERASED, SCENARIO, TIME = "xhpndfst"
"""Kinds of entry: the first letter of the key."""
NEVER_US = 2**62
"""The deadline of what waits for something other than time."""


class Stage(StrEnum):
    """Where an experience stands."""

    WAITING = "waiting"
    """For a batch."""
    SEALED = "sealed"
    """In the batch in flight."""
    ENDED = "ended"
    """Its calls' outcomes are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An experience as the fold remembers it."""

    stage: Stage
    scenario: ScenarioName
    offset: int
    """Where it was assembled."""
    deadline_us: int
    receipts: tuple[Receipt, ...]
    report_ids: tuple[ReportId, ...]
    reward: float | None
    revision_offset: int | None
    """The last revision, where the feedback is."""
    group: str | None
    num_tokens: int
    num_action_tokens: int
    release_seq_first: int
    release_seq_last: int
    tokenizer_digest: Sha256
    session: str | None
    notes: tuple[str, ...] = ()
    state: OutcomeState | None = None
    """How it ended."""
    reason: OutcomeReason | None = None
    batch_id: BatchId | None = None
    candidate_id: CandidateId | None = None
    release_id: ReleaseId | None = None

    def pending(self, experience_id: ExperienceId) -> Pending | None:
        """Show it as a recipe sees it; None without a reward."""
        if self.reward is None:
            return None
        return Pending(
            experience_id=experience_id,
            reward=self.reward,
            group=self.group,
            num_tokens=self.num_tokens,
            num_action_tokens=self.num_action_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a scenario's chain."""

    release_id: ReleaseId
    release_seq: int
    candidate_id: CandidateId | None
    artifact_uri: str
    content_sha256: Sha256
    tokenizer_digest: Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a scenario's batches are."""

    next_batch_seq: int = 0
    batch_id: BatchId | None = None
    """The batch in flight."""
    base_seq: int = 0
    """Of the batch in flight."""
    experience_ids: tuple[ExperienceId, ...] = ()
    """Of the batch in flight."""
    judged_offset: int = -1
    """Waiting experiences up to here were judged by the present head and configuration."""
    judge_until_offset: int = -1
    """Those up to here must be, before a batch is sealed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A candidate that may still be promoted."""

    base_seq: int
    """The release its batch was sealed on."""
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """A call or a session that must not be learned from."""

    offset: int
    deadline_us: int


def pack(entry: Sample | Head | Progress | Held | Erased | tuple[Any, ...]) -> bytes:
    """Write an entry."""
    fields = list(entry) if isinstance(entry, tuple) else asdict(entry)
    return json.dumps({"version": VERSION, "entry": fields}, sort_keys=True, separators=(",", ":")).encode()


def unpack(data: bytes) -> Any:
    """Read the fields of an entry. Raises ValueError on another version."""
    read = json.loads(data)
    if read.get("version") != VERSION:
        raise ValueError(
            f"expected a state entry of version {VERSION}, got {read.get('version')}: "
            "run reef streams --rebuild"
        )
    return read["entry"]


def entry_of(kind: str, fields: Any) -> Any:
    """Make an entry of its fields, by the kind that its key begins with."""
    return _MAKERS[kind](fields)


def _sample_of(fields: dict[str, Any]) -> Sample:
    fields["stage"] = Stage(fields["stage"])
    for name in ("receipts", "report_ids", "notes"):
        fields[name] = tuple(fields[name])
    fields["state"] = None if fields["state"] is None else OutcomeState(fields["state"])
    fields["reason"] = None if fields["reason"] is None else OutcomeReason(fields["reason"])
    return Sample(**fields)


def _progress_of(fields: dict[str, Any]) -> Progress:
    fields["experience_ids"] = tuple(fields["experience_ids"])
    return Progress(**fields)


def waiting_sample(event: ExperienceAssembled, *, offset: int, deadline_us: int) -> Sample:
    """Remember an experience that arrives."""
    return Sample(
        stage=Stage.WAITING,
        scenario=event.scenario,
        offset=offset,
        deadline_us=deadline_us,
        receipts=event.receipts,
        report_ids=event.report_ids,
        reward=event.reward,
        revision_offset=None,
        group=event.group,
        num_tokens=len(event.loss_mask),
        num_action_tokens=event.loss_mask.count(1),
        release_seq_first=event.release_seq_first,
        release_seq_last=event.release_seq_last,
        tokenizer_digest=event.tokenizer_digest,
        session=event.session,
    )


_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    SAMPLE: _sample_of,
    HEAD: lambda fields: Head(**fields),
    PROGRESS: _progress_of,
    NODE: lambda fields: Node(*fields),
    HELD: lambda fields: Held(**fields),
    ERASED: lambda fields: Erased(**fields),
    TIME: lambda fields: fields[0],
}
