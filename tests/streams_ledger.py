"""What was sent to stream workers, and where each call ended, counted in the topics and states they wrote.

Not a fold again: that is `Rig.difference`. Whatever the folds say, a call is in exactly one sample or under
one reason, a sample in one batch, and what has not ended waits in exactly one state.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from random import Random
from time import time_ns

from schemas.events import (
    BatchSealed,
    Event,
    ExperienceAssembled,
    FeedbackReported,
    InferenceCompleted,
    OutcomeReason,
    OutcomeSettled,
    OutcomeState,
    TrainingSample,
)
from schemas.ids import ExperienceId, Receipt, ReportId
from schemas.packed import tokens
from schemas.topics import EXPERIENCE, INTERACTIONS, OUTCOMES, TRAINING
from streams.batch_state import BatchState
from streams.entries import is_pending
from streams.processor import Processor
from streams.session_state import SessionState
from streams.topology import processors
from tests.streams_rig import Rig, a_conversation
from tests.unit.streams.folding import SCENARIO

NUM_CALLS = 3
"""Of each conversation."""


class Fate(Enum):
    """What must become of a call."""

    SAMPLE = auto()
    """It is in one sample, whatever becomes of that."""
    OPTED_OUT = auto()
    """It is dropped for that reason."""
    PENDING = auto()
    """It waits for a report, which never comes."""


@dataclass
class Ledger:
    """Every call that was sent."""

    calls: dict[Receipt, InferenceCompleted] = field(default_factory=dict)
    fates: dict[Receipt, Fate] = field(default_factory=dict)

    @property
    def num_samples(self) -> int:
        """How many experiences must come: reports credit the one call they name."""
        return self.having(Fate.SAMPLE).total()

    def having(self, fate: Fate) -> Counter[Receipt]:
        return Counter([receipt for receipt, each in self.fates.items() if each is fate])

    async def feed(self, rig: Rig, name: str, num_conversations: int, chance: Random) -> None:
        """Send conversations as users and networks do: late, twice, corrected, taken back, unreported."""
        now_us = time_ns() // 1_000
        sent = []
        for number in range(num_conversations):
            for call, report in a_conversation(f"{name}-{number}", NUM_CALLS, now_us):
                sent += [await rig.publisher.send(each) for each in self._told(call, report, chance)]
        for delivery in sent:
            await delivery

    def _told(self, call: InferenceCompleted, report: FeedbackReported, chance: Random) -> list[Event]:
        what = chance.random()
        fate = Fate.SAMPLE
        told: list[Event] = [call, report]
        if what < 0.08:
            fate, call = Fate.OPTED_OUT, replace(call, is_opted_out=True)
            told = [call, report]
        elif what < 0.16:
            fate, told = Fate.PENDING, [call]
        elif what < 0.24:
            told = [report, call]
        elif what < 0.32:
            told = [call, report, call, report]
        elif what < 0.42:
            again = ReportId(f"{report.report_id} again")
            correction = replace(report, report_id=again, supersedes=report.report_id)
            is_withdrawal = what < 0.36
            score = None if is_withdrawal else 0.5
            told = [call, report, replace(correction, is_withdrawal=is_withdrawal, score=score)]
        self.calls[call.receipt], self.fates[call.receipt] = call, fate
        return told

    async def check(self, rig: Rig) -> None:
        """Count every call over the whole chain, as committed; the workers have nothing left to do.

        1. Every call is in the log, and in one sample, if it must be in one, with every token it wrote.
        2. Every sample is in one batch at most; batches are numbered without a gap.
        3. Every call has one outcome, or waits in one state; both states hold these and no others.
        """
        assert all(self.having(fate) for fate in Fate), "some of everything"
        heard = {each.receipt for each in await rig.events(INTERACTIONS, InferenceCompleted)}
        assert heard == self.calls.keys()
        made: list[ExperienceAssembled] = await rig.events(EXPERIENCE, ExperienceAssembled)
        self._check_samples(made)
        batch_of = await _check_batches(rig)
        outcomes: list[OutcomeSettled] = await rig.events(OUTCOMES, OutcomeSettled)
        ends = _ends(outcomes)
        self._check_reasons(ends)
        experience_of = {receipt: each.experience_id for each in made for receipt in each.receipts}
        for receipt, end in ends.items():
            assert end.batch_id == batch_of.get(experience_of.get(receipt)), f"{receipt}: another batch"
        await self._check_states(rig, ends.keys())

    def _check_samples(self, made: list[ExperienceAssembled]) -> None:
        assert Counter([receipt for each in made for receipt in each.receipts]) == self.having(Fate.SAMPLE)
        for each in made:
            answers = [self.calls[receipt].choices[0].token_ids for receipt in each.receipts]
            assert sum(each.loss_mask) == sum(len(tokens(answer)) for answer in answers)

    def _check_reasons(self, ends: dict[Receipt, OutcomeSettled]) -> None:
        for receipt, end in ends.items():
            is_opted_out = end.reason is OutcomeReason.OPTED_OUT
            assert is_opted_out == (self.fates[receipt] is Fate.OPTED_OUT), end
            assert (end.state is OutcomeState.DROPPED) == (end.reason is not None), end
        assert self.having(Fate.OPTED_OUT).keys() <= ends.keys()

    async def _check_states(self, rig: Rig, ended: Iterable[Receipt]) -> None:
        unreported: Counter[Receipt] = Counter()
        unended: Counter[Receipt] = Counter()
        num_pending = 0
        for processor in processors():
            for number in range(rig.num_partitions):
                state = await _loaded(rig, processor, number)
                if isinstance(state, SessionState):
                    waiting = [Receipt(key) for key, each in state.calls.entries.items() if is_pending(each)]
                    unreported.update(waiting)
                    num_pending += state.num_pending()
                if isinstance(state, BatchState):
                    unended.update(_in_buffer(state))
        assert unreported == self.having(Fate.PENDING)
        assert num_pending == unreported.total(), "no report waits"
        assert unended == self.having(Fate.SAMPLE) - Counter(ended)


async def _check_batches(rig: Rig) -> dict[ExperienceId | None, str]:
    sealed: list[BatchSealed] = await rig.events(TRAINING, BatchSealed)
    assert [each.batch_seq for each in sealed] == list(range(len(sealed)))
    assert sealed, "something was trained"
    batch_of: dict[ExperienceId | None, str] = {}
    for seal in sealed:
        for experience_id in seal.experience_ids:
            assert experience_id not in batch_of, f"{experience_id} is in two batches"
            batch_of[experience_id] = seal.batch_id
    samples: list[TrainingSample] = await rig.events(TRAINING, TrainingSample)
    assert Counter([(each.experience.experience_id, each.batch_id) for each in samples]) == Counter(
        batch_of.items()
    )
    return batch_of


def _ends(outcomes: list[OutcomeSettled]) -> dict[Receipt, OutcomeSettled]:
    """The one end of each call; it is told again only to note what came too late."""
    ends: dict[Receipt, OutcomeSettled] = {}
    for each in outcomes:
        first = ends.setdefault(each.receipt, each)
        is_same = (first.state, first.reason, first.batch_id) == (each.state, each.reason, each.batch_id)
        assert each is first or (is_same and each.notes == ("late_after_trained",)), (first, each)
    return ends


async def _loaded(rig: Rig, processor: Processor, number: int) -> object:
    state = processor.new_state(number, rig.num_partitions)
    for key, value in (await rig.entries(processor, number)).items():
        state.load(key, value)
    return state


def _in_buffer(state: BatchState) -> list[Receipt]:
    """The calls of samples that wait, or are in the batch in flight."""
    ids = [*state.waiting(SCENARIO), *state.progress(SCENARIO).experience_ids]
    samples = [state.sample(experience_id) for experience_id in ids]
    return [receipt for sample in samples if sample is not None for receipt in sample.receipts]
