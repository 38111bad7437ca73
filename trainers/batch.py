"""Pure: records of the training topic become whole batches: samples are gathered until their seal comes.

Not a judge of what is worth training: that was decided before the seal. A batch whose parts do not belong
together is handed on as broken, because somebody waits for its end.

Next: trainers/packing.py
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.errors import RejectedError
from schemas.events import BatchSealed, ExperienceAssembled, TrainingSample
from schemas.packed import num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A sealed batch with all its samples."""

    sealed: BatchSealed
    """The seal."""
    experiences: tuple[ExperienceAssembled, ...]
    """The samples, by index."""
    next_offset: int
    """Where reading goes on after it."""

    @property
    def num_tokens(self) -> int:
        """Of all samples."""
        return sum(num_tokens(experience.token_ids) for experience in self.experiences)

    @property
    def num_actions(self) -> int:
        """Tokens that the model generated, in all samples."""
        return sum(sum(experience.loss_mask) for experience in self.experiences)


Samples = tuple[TrainingSample, ...]
"""What was gathered since the last seal."""


def gather(
    samples: Samples, event: TrainingSample | BatchSealed, next_offset: int
) -> tuple[Samples, tuple[Batch, ...]]:
    """Take the next event of one scenario; give a batch when it is complete, broken or not."""
    if isinstance(event, TrainingSample):
        same_batch = samples[:1] and samples[0].batch_id == event.batch_id
        return ((*samples, event) if same_batch else (event,)), ()
    ordered = sorted(samples, key=lambda sample: sample.index)
    experiences = tuple(sample.experience for sample in ordered if sample.batch_id == event.batch_id)
    return (), (Batch(sealed=event, experiences=experiences, next_offset=next_offset),)


def check(batch: Batch, *, recipe: str, vocab_size: int) -> None:
    """Refuse a batch that cannot be trained as it is, or not by this recipe. Raises RejectedError."""
    if batch.sealed.recipe != recipe:
        raise RejectedError(
            f"expected a batch of {recipe}, got one of {batch.sealed.recipe}: restart the trainer with the "
            "scenario's present configuration",
            reason="foreign_recipe",
        )
    found = tuple(experience.experience_id for experience in batch.experiences)
    if found != batch.sealed.experience_ids or not found:
        raise RejectedError(
            f"expected the {len(batch.sealed.experience_ids)} samples that the seal names, got {len(found)}: "
            "a sample was refused or lost; see reef.rejected.v1",
            reason="incomplete_batch",
        )
    for experience in batch.experiences:
        _check_sample(experience, vocab_size)


def _check_sample(experience: ExperienceAssembled, vocab_size: int) -> None:
    problem = _problem_of(experience, vocab_size)
    if problem is not None:
        raise RejectedError(
            f"expected a trainable sample, got {experience.experience_id} {problem}: "
            "look at the fold that made it",
            reason="bad_sample",
        )


def _problem_of(experience: ExperienceAssembled, vocab_size: int) -> str | None:
    num = num_tokens(experience.token_ids)
    lengths = (
        len(experience.loss_mask),
        num_tokens(experience.logprobs),
        num_tokens(experience.temperatures),
    )
    if lengths != (num, num, num):
        return f"with {num} tokens, but arrays of {lengths}"
    if experience.reward is None:
        return "without a reward"
    if not any(experience.loss_mask) or experience.loss_mask[0]:
        return "without actions, or with one at its first token, which nothing precedes"
    largest = max_token(experience)
    return f"with token {largest} in a vocabulary of {vocab_size}" if largest >= vocab_size else None


def max_token(experience: ExperienceAssembled) -> int:
    """The largest token id of a sample."""
    ids: Sequence[int] = memoryview(experience.token_ids).cast("I")
    return max(ids)
