"""What holds of the batch fold in every history: a trainer and a release service are played by chance."""

from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import (
    BatchSealed,
    BatchState,
    Event,
    ExperienceAssembled,
    Operation,
    OutcomeReason,
    OutcomeSettled,
    OutcomeState,
    ReleaseAdvanced,
    TrainingSample,
)
from schemas.ids import CandidateId, ExperienceId, Session, Sha256
from streams import batch, batch_state
from streams.outputs import Timed
from tests.builders import an_erasure_requested, an_experience_revised, an_experience_withdrawn
from tests.unit.streams.folding import HOUR_US, SCENARIO, Folding, a_configuration, batch_folding
from tests.unit.streams.histories import random_histories, seeds
from tests.unit.streams.recipes import load
from tests.unit.streams.test_batch import a_head, a_settlement, an_experience, of

Batch = Folding[batch_state.BatchState]


@dataclass
class World:
    """A fold with the services around it, and what they know."""

    chance: Random
    folding: Batch
    max_staleness: int
    lines: dict[int, list[Sha256]] = field(default_factory=dict)
    """The line of contents that leads to each release, as lists."""
    contents: dict[int, Sha256] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    """The head when each batch was sealed."""
    sent: list[ExperienceAssembled] = field(default_factory=list)
    held: dict[CandidateId, list[Sha256]] = field(default_factory=dict)
    stale: dict[ExperienceId, bool] = field(default_factory=dict)
    """Whether each experience was stale when its fate was decided."""

    @property
    def head(self) -> int:
        return max(self.lines)

    def take(self, event: Event) -> None:
        outputs = self.folding.take(event)
        for each in outputs:
            told = getattr(each, "event", None)
            if isinstance(told, BatchSealed):
                self.heads[told.batch_id] = self.head
            if isinstance(told, TrainingSample):
                self.stale[told.experience.experience_id] = self.is_stale(told.experience)
            if isinstance(told, OutcomeSettled) and told.reason is OutcomeReason.STALE and told.experience_id:
                (one,) = [each for each in self.sent if each.experience_id == told.experience_id]
                self.stale[told.experience_id] = self.is_stale(one)

    def is_stale(self, experience: ExperienceAssembled) -> bool:
        fresh = self.lines[self.head][-1 - self.max_staleness :]
        seqs = (experience.release_seq_first, experience.release_seq_last)
        return any(self.contents.get(seq, "newer") not in fresh for seq in seqs if seq <= self.head)

    def release(self, operation: Operation, **changes: Any) -> None:
        seq = self.head + 1
        event: ReleaseAdvanced = a_head(seq, operation=operation, **changes)
        self.contents[seq] = event.content_sha256
        if operation is Operation.ROLLBACK:
            same = max(
                old for old, content in self.contents.items() if content == event.content_sha256 and old < seq
            )
            self.lines[seq] = self.lines[same]
        elif operation is Operation.PROMOTE:
            base = self.held.pop(event.candidate_id or CandidateId(""), [])
            self.lines[seq] = [*base, event.content_sha256]
        else:
            self.lines[seq] = [*self.lines[seq - 1], event.content_sha256]
        self.take(event)

    def in_flight(self) -> BatchSealed | None:
        sealed: list[BatchSealed] = self.folding.emitted(BatchSealed)
        if not sealed or self.folding.state.progress(SCENARIO).batch_id != sealed[-1].batch_id:
            return None
        return sealed[-1]

    def end_batch(self, seal: BatchSealed) -> None:
        state = self.chance.choice([each for each in BatchState if each is not BatchState.UNSPECIFIED])
        candidate = CandidateId(f"of-{seal.batch_seq}")
        seq = None
        if state is BatchState.TRAINED:
            self.release(Operation.TRAINING, candidate_id=candidate)
            seq = self.head
        if state is BatchState.HELD:
            self.held[candidate] = self.lines[self.heads[seal.batch_id]]
        self.take(a_settlement(seal.batch_id, state, seq, candidate))


@cache
def a_world(seed: int) -> World:
    """Live through a history; several properties look at what came of it, and none changes it."""
    chance = Random(seed)
    max_staleness = chance.choice([0, 0, 1, 2])
    configuration = {
        "max_staleness": max_staleness,
        "batch_size": chance.choice([1, 2, 3]),
        "recipe": chance.choice(["score", "score", "group"]),
        "streams": {"buffer_max_age_s": 7_200, "buffer_experiences_max": chance.choice([3, 100])},
    }
    world = World(chance, batch_folding(**configuration), max_staleness)
    first = a_head(0)
    world.lines[0], world.contents[0] = [first.content_sha256], first.content_sha256
    world.take(first)
    for number in range(chance.randint(5, 40)):
        _happen(world, number)
    for _ in range(3):
        if (seal := world.in_flight()) is not None:
            world.end_batch(seal)
        world.folding.tick(3 * HOUR_US)
    if (seal := world.in_flight()) is not None:
        world.end_batch(seal)
    return world


def _happen(world: World, number: int) -> None:
    chance = world.chance
    seal = world.in_flight()
    if seal is not None and chance.random() < 0.3:
        world.end_batch(seal)
    what = chance.random()
    if what < 0.6:
        first = max(0, world.head - chance.choice([0, 0, 0, 1, 2]))
        last = chance.randint(first, world.head + (chance.random() < 0.1))
        session = chance.choice([None, Session("a")])
        reward = chance.choice([1.0, 0.0, None])
        group = chance.choice([None, "g", "h"])
        one = an_experience(number, first, last, session=session, reward=reward, group=group)
        world.sent.append(one)
        world.take(one)
    elif what < 0.75 and world.sent:
        _correct(world, chance.choice(world.sent), number)
    elif what < 0.8:
        content = world.contents[chance.randrange(world.head + 1)]
        world.release(Operation.ROLLBACK, content_sha256=content)
    elif what < 0.85 and world.held:
        world.release(Operation.PROMOTE, candidate_id=chance.choice(sorted(world.held)))
    elif what < 0.87:
        world.take(an_erasure_requested(scenario=SCENARIO, session=Session("a"), receipts=()))
    elif what < 0.9 and world.sent:
        world.take(chance.choice(world.sent))  # once more
    else:
        world.folding.tick(chance.choice([0, 1, HOUR_US]))


def _correct(world: World, one: ExperienceAssembled, number: int) -> None:
    if world.chance.random() < 0.3:
        world.take(an_experience_withdrawn(**of(one), report_id=f"w{number}"))
    else:
        reward = world.chance.choice([None, 0.5])
        world.take(an_experience_revised(**of(one), reward=reward, feedback=None, report_id=f"r{number}"))


@random_histories
@given(seed=seeds)
def test_every_experience_ends_once_in_one_batch_or_under_one_reason(seed: int) -> None:
    world = a_world(seed)
    outcomes: list[OutcomeSettled] = world.folding.emitted(OutcomeSettled)
    first = {each.receipt: each for each in reversed(outcomes)}
    assert set(first) == {receipt for each in world.sent for receipt in each.receipts}
    repeated = [each for each in outcomes if each is not first[each.receipt]]
    assert all(each.notes == ("late_after_trained",) for each in repeated), "only to add a note"
    assert all(each.state is first[each.receipt].state for each in repeated)
    samples: list[TrainingSample] = world.folding.emitted(TrainingSample)
    batches = {each.experience.experience_id: each.batch_id for each in samples}
    assert len(batches) == len(samples), "an experience is sealed twice"
    for each in first.values():
        assert each.experience_id is not None
        assert each.batch_id == batches.get(each.experience_id)
        assert (each.state is OutcomeState.TRAINED) <= (each.batch_id is not None)


@random_histories
@given(seed=seeds)
def test_what_is_sealed_is_fresh_and_what_is_called_stale_is_not(seed: int) -> None:
    world = a_world(seed)
    outcomes: list[OutcomeSettled] = world.folding.emitted(OutcomeSettled)
    stale = {each.experience_id for each in outcomes if each.reason is OutcomeReason.STALE}
    for experience_id, is_stale in world.stale.items():
        assert is_stale == (experience_id in stale)


@random_histories
@given(seed=seeds)
def test_a_batch_starts_from_the_head_and_one_is_in_flight(seed: int) -> None:
    world = a_world(seed)
    sealed: list[BatchSealed] = world.folding.emitted(BatchSealed)
    assert [each.batch_seq for each in sealed] == list(range(len(sealed)))
    for seal in sealed:
        head = world.heads[seal.batch_id]
        assert (seal.base_release_seq, seal.base_content_sha256) == (head, world.contents[head])


@random_histories
@given(seed=seeds, data=st.data())
def test_cut_anywhere_and_loaded_again_a_history_gives_the_same_bytes(seed: int, data: st.DataObject) -> None:
    whole = a_world(seed).folding
    log: list[Timed] = [whole.log[offset] for offset in sorted(whole.log)]
    cut = data.draw(st.integers(0, len(log)))
    first = Folding(batch_state.BatchState(load_recipe=load), batch.step, batch.needs)
    for timed in log[:cut]:
        first.log[timed.offset] = timed
        first.fold(timed)
    loaded = batch_state.BatchState(load_recipe=load)
    second = Folding(loaded, batch.step, batch.needs, log=dict(first.log), stored=dict(first.stored))
    for key in data.draw(st.permutations(sorted(first.stored))):
        second.state.load(key, first.stored[key])
    for timed in log[cut:]:
        second.log[timed.offset] = timed
        second.fold(timed)
    assert list(map(repr, first.outputs + second.outputs)) == list(map(repr, whole.outputs))
    assert second.stored == whole.stored


def test_a_configuration_is_part_of_the_log() -> None:
    folding = Folding(batch_state.BatchState(load_recipe=load), batch.step, batch.needs)
    folding.take(a_head(0))
    folding.take(an_experience(1))
    assert folding.emitted(BatchSealed) == []
    folding.take(a_configuration(batch_size=1))
    assert len(folding.emitted(BatchSealed)) == 1
