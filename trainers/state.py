"""Pure: what a trainer knows beside its tensors: where it reads on, what it holds, how its last batch ended.

One small file, the pointer, holds all of it and is replaced in one step, so the offset and the weights that
it led to are never seen apart. Not the tensors: the pointer names their folder.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.errors import RejectedError
from schemas.events import ArtifactKind, OptimizerState
from schemas.ids import BatchId, CandidateId, ReleaseId, ScenarioName, Sha256, derived_id
from trainers.batch import Batch

VERSION: Literal[1] = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Trained(_Frozen):
    """The last batch became a candidate: enough to export and announce it again, ids and bytes the same."""

    outcome: Literal["trained"] = "trained"
    candidate_id: CandidateId
    batch_id: BatchId
    batch_seq: int
    kind: ArtifactKind
    base_release_id: ReleaseId
    base_artifact_uri: str
    base_content_sha256: Sha256
    recipe: str
    recipe_digest: Sha256
    step: int
    metrics: dict[str, float] = Field(description="all of them, measured ones too")
    optimizer: OptimizerState
    is_publishable: bool
    trained_at_us: int


class Failed(_Frozen):
    """The last batch could not be trained."""

    outcome: Literal["failed"] = "failed"
    batch_id: BatchId
    reason: str
    detail: str
    failed_at_us: int


Result = Annotated[Trained | Failed, Field(discriminator="outcome")]


class Kept(_Frozen):
    """A folder of tensors."""

    folder: str = Field(description="its name below `checkpoints`")
    content_sha256: Sha256 | None = Field(description="of the content they are; None until it is exported")
    step: int = Field(description="steps of the policy behind it")


class State(_Frozen):
    """The pointer."""

    version: Literal[1] = VERSION
    scenario: ScenarioName
    offset: int = Field(ge=0, description="of the next record to be read")
    batch_seq: int = Field(ge=-1, description="of the last batch; -1 before the first")
    threads: int = Field(ge=1)
    ranks: int = Field(ge=1)
    held: str | None = Field(description="folder of the tensors as they are; None: the base model's")
    kept: tuple[Kept, ...] = Field(description="oldest first")
    result: Result | None = Field(description="of the last batch; None before the first")

    @property
    def held_content(self) -> Sha256 | None:
        """The content that the tensors are."""
        return next((kept.content_sha256 for kept in self.kept if kept.folder == self.held), None)

    def holding(self, content: Sha256) -> Kept | None:
        """Find the newest kept folder of a content."""
        return next((kept for kept in reversed(self.kept) if kept.content_sha256 == content), None)

    def with_content(self, content: Sha256) -> "State":
        """Name the content of what is held, once it is known."""
        kept = tuple(
            one.model_copy(update={"content_sha256": content}) if one.folder == self.held else one
            for one in self.kept
        )
        return self.model_copy(update={"kept": kept})


def first_state(scenario: ScenarioName, *, offset: int, threads: int, ranks: int) -> State:
    """Begin at an offset, holding nothing but the base model."""
    return State(
        scenario=scenario,
        offset=offset,
        batch_seq=-1,
        threads=threads,
        ranks=ranks,
        held=None,
        kept=(),
        result=None,
    )


def steps_of(state: State) -> int:
    """Steps of the policy behind what is held."""
    return next((kept.step for kept in state.kept if kept.folder == state.held), 0)


def candidate_id_of(batch_id: BatchId) -> CandidateId:
    """Derive a candidate's name: the same batch gives the same candidate, however often it is trained."""
    return CandidateId(derived_id("CandidateTrained", batch_id))


def after_step(state: State, new: Kept, batch: Batch, result: Trained, *, num_newest: int) -> State:
    """Move on behind a batch that was trained: keep the newest tensors, and those of the batch's base."""
    kept = retained((*state.kept, new), base=batch.sealed.base_content_sha256, num_newest=num_newest)
    return state.model_copy(
        update={
            "offset": batch.next_offset,
            "batch_seq": batch.sealed.batch_seq,
            "held": new.folder,
            "kept": kept,
            "result": result,
        }
    )


def after_failure(state: State, batch: Batch, result: Failed) -> State:
    """Move on behind a batch that was not trained; what was held stays."""
    return state.model_copy(
        update={"offset": batch.next_offset, "batch_seq": batch.sealed.batch_seq, "result": result}
    )


def retained(kept: tuple[Kept, ...], *, base: Sha256, num_newest: int) -> tuple[Kept, ...]:
    """Choose what to keep: the newest, and the newest one of the base's content. Never nothing."""
    assert num_newest >= 1
    newest = kept[-num_newest:]
    of_base = [one for one in kept if one.content_sha256 == base][-1:]
    return tuple(one for one in kept if one in newest or one in of_base)


def decode_state(data: bytes) -> State:
    """Read the pointer. Raises RejectedError."""
    try:
        return State.model_validate_json(data)
    except ValidationError as error:
        raise RejectedError(
            f"expected a trainer's pointer of version {VERSION}, got {error.errors()[0]['msg']}: it is of "
            "another version, or damaged; restore it or remove the trainer's folder",
            reason="bad_checkpoint",
        ) from error
