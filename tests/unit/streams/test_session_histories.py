"""What holds of the session fold in every history; the seed of a failing one is printed as its example."""

from collections.abc import Iterable
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from schemas.events import (
    Event,
    ExperienceAssembled,
    ExperienceRevised,
    ExperienceWithdrawn,
    InferenceCompleted,
    OutcomeSettled,
)
from schemas.packed import floats, tokens
from streams import session
from streams.outputs import Emitted, Output, Refused, Timed
from streams.session_state import SessionState
from tests.unit.streams.folding import Folding
from tests.unit.streams.histories import a_history, random_histories, seeds
from tests.unit.streams.oracle import Fact, Oracle, ids
from tests.unit.streams.recipes import load


def a_state() -> SessionState:
    return SessionState(partition=0, num_partitions=1, load_recipe=load)


@cache
def folded(seed: int) -> Folding[SessionState]:
    """Fold a history; what comes of it is looked at by several properties, and changed by none."""
    return fold_log(a_history(seed).log)


def fold_log(log: Iterable[Timed]) -> Folding[SessionState]:
    folding = Folding(a_state(), session.step, session.needs)
    for timed in log:
        folding.log[timed.offset] = timed
        folding.fold(timed)
    return folding


def fact_of(output: Output) -> Fact | None:
    if isinstance(output, Refused):
        return ("refused", output.offset, output.error.reason)
    return fact_told(output.event) if isinstance(output, Emitted) else None


def fact_told(event: Event) -> Fact | None:
    match event:
        case ExperienceAssembled() as made:
            sample = (ids(made.token_ids), tuple(made.loss_mask), made.num_realigned_tokens)
            return ("sample", made.receipts, made.reward, *sample)
        case ExperienceRevised() as revised:
            return ("revised", revised.receipts, revised.reward)
        case ExperienceWithdrawn() as withdrawn:
            return ("withdrawn", withdrawn.receipts)
        case OutcomeSettled() as outcome:
            return ("settled", outcome.receipt, None if outcome.reason is None else outcome.reason.value)
    return None


@random_histories
@example(seed=1851)  # a withdrawal repeated as a report that withdraws nothing
@given(seed=seeds)
def test_what_comes_of_a_history_is_what_the_rules_say(seed: int) -> None:
    history = a_history(seed)
    oracle = Oracle(history.rules)
    folding = Folding(a_state(), session.step, session.needs)
    for timed in history.log:
        folding.log[timed.offset] = timed
        outputs = folding.fold(timed)
        oracle.facts.clear()
        oracle.take(timed)
        facts = sorted(map(repr, filter(None, map(fact_of, outputs))))
        assert facts == sorted(map(repr, oracle.facts)), f"at offset {timed.offset}: {timed.event}"


@random_histories
@given(seed=seeds)
def test_every_call_ends_in_exactly_one_sample_or_under_one_reason(seed: int) -> None:
    history = a_history(seed)
    folding = folded(seed)
    refused = {offset for offset, _ in folding.refused()}
    heard = {
        timed.event.receipt
        for timed in history.log
        if isinstance(timed.event, InferenceCompleted) and timed.offset not in refused
    }
    in_samples = [name for made in folding.emitted(ExperienceAssembled) for name in made.receipts]
    settled = [outcome.receipt for outcome in folding.emitted(OutcomeSettled)]
    assert sorted(in_samples + settled) == sorted(heard)


@random_histories
@given(seed=seeds)
def test_every_token_trained_is_one_that_the_model_wrote_after_what_stands_before_it(seed: int) -> None:
    history = a_history(seed)
    calls = {call.receipt: call for call in history.calls}
    for made in folded(seed).emitted(ExperienceAssembled):
        read, mask = ids(made.token_ids), list(made.loss_mask)
        num_trained = 0
        for receipt in made.receipts:
            prompt = ids(calls[receipt].prompt_token_ids)
            answer = ids(calls[receipt].choices[0].token_ids)
            written = floats(calls[receipt].choices[0].logprobs)
            assert read[: len(prompt)] == prompt
            for place, token in enumerate(answer):
                at = len(prompt) + place
                if at < len(mask) and mask[at] and floats(made.logprobs)[at] == written[place]:
                    assert read[: at + 1] == (*prompt, *answer[:place], token)
                    num_trained += 1
        generated = sum(len(tokens(calls[receipt].choices[0].token_ids)) for receipt in made.receipts)
        assert sum(mask) == num_trained == generated - made.num_realigned_tokens
        assert made.num_prompt_tokens == mask.index(1)
        assert all(logprob == 0 for logprob, bit in zip(floats(made.logprobs), mask, strict=True) if not bit)


@random_histories
@given(seed=seeds, data=st.data())
def test_cut_anywhere_and_loaded_again_a_history_gives_the_same_bytes(seed: int, data: st.DataObject) -> None:
    history = a_history(seed)
    whole = folded(seed)
    cut = data.draw(st.integers(0, len(history.log)))
    first = Folding(a_state(), session.step, session.needs)
    for timed in history.log[:cut]:
        first.log[timed.offset] = timed
        first.fold(timed)
    second = Folding(a_state(), session.step, session.needs, stored=dict(first.stored), log=dict(first.log))
    for key in data.draw(st.permutations(sorted(first.stored))):
        second.state.load(key, first.stored[key])
    for timed in history.log[cut:]:
        second.log[timed.offset] = timed
        second.fold(timed)
    assert list(map(repr, first.outputs + second.outputs)) == list(map(repr, whole.outputs))
    assert second.stored == whole.stored


@random_histories
@example(seed=0)
@given(seed=seeds)
def test_when_all_windows_have_passed_nothing_is_kept(seed: int) -> None:
    stored = folded(seed).stored
    assert {key[:1] for key in stored} <= {b"S", b"T", b"F"}
