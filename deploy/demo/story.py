"""Pure: what happened in one run, folded from the log: batches and their rewards, releases, swaps, fates.

Not the system's own state: whoever reads the same topics can tell the same story.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from schemas.events import (
    BatchSealed,
    CandidateEvaluated,
    CandidateTrained,
    Event,
    FeedbackReported,
    InferenceCompleted,
    ModelSwapped,
    OutcomeSettled,
    OutcomeState,
    ReleasePublished,
    TrainingSample,
)
from schemas.ids import BatchId, Receipt, ReleaseId, ScenarioName

GOOD = 0.9
"""Mean reward from which a batch counts as learned."""
GOOD_BATCHES = 2
"""So many in a row end the demo."""


@dataclass(slots=True, kw_only=True)
class BatchStory:
    """One batch, from the feedback to the first token of what it became; times in microseconds UTC."""

    number: int
    """Counts the run's batches, from 1."""
    rewards: list[float] = field(default_factory=list)
    """Of its samples."""
    last_feedback_us: int = 0
    """Of the last report that it holds."""
    free_us: int = 0
    """When the batch before it was done: only then could this one be sealed."""
    sealed_us: int | None = None
    """When it was complete in the log."""
    trained_us: int | None = None
    """When its candidate was announced."""
    verdict: str | None = None
    """What the evaluation said."""
    release_id: ReleaseId | None = None
    """What it became."""
    release_seq: int | None = None
    """Its place in the chain."""
    pause_ms: float | None = None
    """How long the engine paused for it."""
    first_token_us: int | None = None
    """Of the first answer that began with it."""
    answer: str | None = None
    """What it says to the question that every release is asked."""

    @property
    def is_under_way(self) -> bool:
        """Whether it may still become answers: not when it was rejected."""
        return self.first_token_us is None and self.verdict in (None, "accepted")

    @property
    def reward_mean(self) -> float:
        """Mean reward of its samples."""
        return fmean(self.rewards)

    @property
    def sealing_s(self) -> float | None:
        """Seconds from the last feedback, or from the end of the batch before, to the seal."""
        if self.sealed_us is None:
            return None
        return max(0.0, (self.sealed_us - max(self.last_feedback_us, self.free_us)) / 1e6)

    @property
    def training_s(self) -> float | None:
        """Seconds from the seal to the candidate."""
        return _between(self.sealed_us, self.trained_us)

    @property
    def releasing_s(self) -> float | None:
        """Seconds from the candidate to the first token of its release."""
        return _between(self.trained_us, self.first_token_us)


@dataclass(slots=True, kw_only=True)
class Story:
    """One scenario's run so far."""

    scenario: ScenarioName
    """Whose events count."""
    answered: set[Receipt] = field(default_factory=set)
    """Calls in the log."""
    num_reports: int = 0
    """Reports in the log."""
    batches: dict[BatchId, BatchStory] = field(default_factory=dict)
    """In order of sealing."""
    fates: dict[Receipt, tuple[OutcomeState, str | None]] = field(default_factory=dict)
    """The latest outcome of each call, earlier runs' calls included: these may end in this one."""
    releases: list[ReleasePublished] = field(default_factory=list)
    """Published meanwhile, in order."""
    _reported_us: dict[Receipt, int] = field(default_factory=dict)
    _free_us: int = 0

    def take(self, event: Event, time_us: int) -> None:
        """Fold one event; the time is its record's."""
        if getattr(event, "scenario", None) != self.scenario:
            return
        self._take_traffic(event, time_us)
        self._take_batch(event, time_us)
        self._take_chain(event, time_us)

    def _take_traffic(self, event: Event, time_us: int) -> None:
        match event:
            case InferenceCompleted():
                self.answered.add(event.receipt)
            case FeedbackReported():
                self.num_reports += 1
                self._reported_us.update(dict.fromkeys(event.references, time_us))
            case OutcomeSettled():
                self.fates[event.receipt] = (event.state, event.reason)

    def _take_batch(self, event: Event, time_us: int) -> None:
        match event:
            case TrainingSample():
                self._take_sample(event)
            case BatchSealed() if event.batch_id in self.batches:
                self.batches[event.batch_id].sealed_us = time_us
            case CandidateTrained():
                for batch in self._batches_of([event.batch_id]):
                    batch.trained_us = time_us

    def _take_chain(self, event: Event, time_us: int) -> None:
        match event:
            case CandidateEvaluated():
                for batch in self._batches_of(event.batch_ids):
                    batch.verdict = event.verdict
                self._free_us = time_us
            case ReleasePublished():
                self._take_release(event)
            case ModelSwapped():
                self._take_swap(event)

    def _take_sample(self, sample: TrainingSample) -> None:
        fresh = BatchStory(number=len(self.batches) + 1, free_us=self._free_us)
        batch = self.batches.setdefault(sample.batch_id, fresh)
        batch.rewards.append(sample.experience.reward or 0.0)
        times = [self._reported_us.get(receipt, 0) for receipt in sample.experience.receipts]
        batch.last_feedback_us = max(batch.last_feedback_us, *times)

    def _take_release(self, release: ReleasePublished) -> None:
        self.releases.append(release)
        for batch in self._batches_of(release.batch_ids):
            if batch.release_id is None:
                batch.release_id, batch.release_seq = release.release_id, release.release_seq

    def _take_swap(self, swap: ModelSwapped) -> None:
        for batch in self.batches.values():
            if batch.release_id == swap.release_id:
                batch.pause_ms = swap.pause_ms

    def hear_first_token(self, release_id: str, first_token_us: int) -> None:
        """Note the earliest answer that began with a release, as a user saw it."""
        for batch in self.batches.values():
            if batch.release_id == release_id:
                earlier = batch.first_token_us or first_token_us
                batch.first_token_us = min(earlier, first_token_us)

    def hear_answer(self, release_id: str, answer: str) -> None:
        """Note what a release says to the one question."""
        for batch in self.batches.values():
            if batch.release_id == release_id:
                batch.answer = answer

    def awaits(self, batch: BatchStory) -> bool:
        """Whether more will be heard of a batch: one that was overtaken is not asked any more."""
        is_newest = bool(self.releases) and self.releases[-1].release_id == batch.release_id
        is_told = batch.answer is not None and batch.pause_ms is not None
        return batch.is_under_way or (is_newest and not is_told)

    def _batches_of(self, names: Sequence[BatchId]) -> list[BatchStory]:
        return [self.batches[name] for name in names if name in self.batches]

    @property
    def sealed(self) -> list[BatchStory]:
        """The batches that are complete, in order."""
        return [batch for batch in self.batches.values() if batch.sealed_us is not None]

    @property
    def has_learned(self) -> bool:
        """Whether the last batches are all good."""
        rewards = [batch.reward_mean for batch in self.sealed[-GOOD_BATCHES:]]
        return len(rewards) == GOOD_BATCHES and min(rewards) >= GOOD

    def fates_of(self, receipts: set[Receipt]) -> Mapping[str, int]:
        """Count calls by how they ended: trained, dropped, pending; a call is under one of them."""
        states = Counter(str(self.fates[name][0]) if name in self.fates else "pending" for name in receipts)
        return {state: states[state] for state in ("trained", "dropped", "pending")}

    def reasons_of(self, receipts: set[Receipt]) -> Mapping[str, int]:
        """Count those of the calls that were dropped by reason, the most frequent first."""
        ends = [self.fates[name] for name in receipts if name in self.fates]
        found = Counter(str(reason) for state, reason in ends if state == OutcomeState.DROPPED)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def quarter_means(self) -> tuple[float | None, float | None]:
        """Mean reward of the first and of the last quarter of the batches."""
        sealed = self.sealed
        if not sealed:
            return None, None
        num = max(1, len(sealed) // 4)
        first, last = (fmean(b.reward_mean for b in part) for part in (sealed[:num], sealed[-num:]))
        return round(first, 4), round(last, 4)


def _between(first_us: int | None, last_us: int | None) -> float | None:
    return None if first_us is None or last_us is None else (last_us - first_us) / 1e6
