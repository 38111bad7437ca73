"""Merging by token prefix: what is one sample, what is a fork, and whose token each is."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import ExperienceAssembled, InferenceCompleted
from schemas.packed import Mask, floats, tokens
from streams.trajectory import Trajectory, Turn, ancestors, assemble
from tests.unit.streams.folding import a_call, a_report, an_answer, receipt_at, session_folding
from tests.unit.streams.histories import random_histories

LONG = 10**9


def turns(*calls: tuple[Sequence[int], Sequence[int]], quoted: Sequence[int] = ()) -> list[Turn]:
    return [
        Turn(a_call(number, prompt, answer), number, number in quoted)
        for number, (prompt, answer) in enumerate(calls)
    ]


def merged(of: list[Turn], realign: int = 0, longest: int = LONG) -> list[tuple[list[int], list[int]]]:
    found = assemble(of, sample_tokens_max=longest, realign_tokens_max=realign)
    return [(tokens(each.token_ids).tolist(), list(each.loss_mask)) for each in found.trajectories]


def test_a_call_that_goes_on_from_another_is_one_sample_with_it() -> None:
    assert merged(turns(([1, 2], [7]), ([1, 2, 7, 3], [8, 9]))) == [([1, 2, 7, 3, 8, 9], [0, 0, 1, 0, 1, 1])]


def test_a_call_whose_history_changed_is_a_fork() -> None:
    found = merged(turns(([1, 2], [7]), ([1, 9, 7, 3], [8])))
    assert found == [([1, 9, 7, 3, 8], [0, 0, 0, 0, 1]), ([1, 2, 7], [0, 0, 1])]


def test_a_trunk_that_forks_share_is_trained_in_one_of_them() -> None:
    found = merged(turns(([1], [7]), ([1, 7, 2], [8]), ([1, 7, 3, 3], [9])))
    assert found == [([1, 7, 3, 3, 9], [0, 1, 0, 0, 1]), ([1, 7, 2, 8], [0, 0, 0, 1])]


def test_a_quoted_call_is_taken_before_its_twin() -> None:
    calls = (([1], [7]), ([1], [7]), ([1, 7, 2], [8]))
    for quoted in (0, 1):
        found = assemble(turns(*calls, quoted=[quoted]), sample_tokens_max=LONG, realign_tokens_max=0)
        assert [turn.offset for turn in found.trajectories[0].turns] == [quoted, 2]


def test_a_tail_rendered_otherwise_is_replaced_masked_and_counted() -> None:
    calls = turns(([1], [7, 8, 9]), ([1, 7, 8, 5, 5, 2], [6]))
    (only,) = assemble(calls, sample_tokens_max=LONG, realign_tokens_max=1).trajectories
    assert tokens(only.token_ids).tolist() == [1, 7, 8, 5, 5, 2, 6]
    assert list(only.loss_mask) == [0, 1, 1, 0, 0, 0, 1]
    assert only.num_realigned_tokens == 1
    assert len(merged(calls, realign=0)) == 2, "without the option a changed history forks"


def test_more_than_the_tail_is_a_fork() -> None:
    assert len(merged(turns(([1], [7, 8, 9]), ([1, 7, 5, 5, 2], [6])), realign=1)) == 2


def test_a_call_longer_than_a_sample_may_be_is_named_and_the_rest_is_kept() -> None:
    found = assemble(turns(([1], [7]), ([1, 7, 2], [8, 9])), sample_tokens_max=4, realign_tokens_max=0)
    assert found.too_long == (receipt_at(1),)
    assert [tokens(each.token_ids).tolist() for each in found.trajectories] == [[1, 7]]


def test_calls_of_different_tokenizers_are_never_one_sample() -> None:
    first, second = turns(([1], [7]), ([1, 7, 2], [8]))
    other = Turn(a_call(0, [1], [7], tokenizer_digest="00" * 32), 0)
    assert len(merged([first, second])) == 1
    assert len(merged([other, second])) == 2


def test_the_ancestors_of_a_call_are_one_for_each_turn() -> None:
    first, twin, second, last = turns(([1], [7]), ([1], [7]), ([1, 7, 2], [8]), ([1, 7, 2, 8, 3], [9]))
    assert [each.offset for each in ancestors(last, [twin, second, first], realign_tokens_max=0)] == [0, 2]


@random_histories
@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40), st.integers(1, 40))
def test_ids_of_a_sample_are_the_ids_of_the_event(ids: list[int], cut: int) -> None:
    """CASES 3: no text is between them, wherever a chunk ended."""
    prompt, answer = ids[:cut] or [0], ids[cut:] or [1]
    (only,) = assemble(
        [Turn(a_call(1, prompt, answer), 1)], sample_tokens_max=LONG, realign_tokens_max=0
    ).trajectories
    written = [index for index, bit in enumerate(only.loss_mask) if bit]
    assert [tokens(only.token_ids).tolist()[at] for at in written] == answer
    logprobs = floats(an_answer(answer, 1).logprobs)
    assert [floats(only.logprobs)[at] for at in written] == list(logprobs)


def an_agent_session(scale: int) -> list[InferenceCompleted]:
    """25 calls: a title, a history that grows, its compaction (99k to 45k, scaled), a new system."""
    calls: list[InferenceCompleted] = []
    token = iter(range(10, 10**9))

    def fresh(count: int) -> list[int]:
        return [next(token) for _ in range(count)]

    def ask(prompt: list[int], num_written: int) -> list[int]:
        answer = fresh(num_written)
        calls.append(a_call(len(calls), prompt, answer))
        return [*prompt, *answer]

    ask(fresh(300 // scale), 12)  # the title call: a prompt of its own
    history = fresh(9_000 // scale)
    for _ in range(15):
        history = ask(history + fresh(5_000 // scale), 1_000 // scale)
    compacted = history[: 9_000 // scale] + fresh(36_000 // scale)
    for _ in range(6):
        compacted = ask(compacted + fresh(2_000 // scale), 500 // scale)
    rewritten = fresh(500 // scale) + compacted[500 // scale :]
    for _ in range(3):
        rewritten = ask(rewritten + fresh(1_000 // scale), 300 // scale)
    return calls


def test_every_token_of_an_agents_session_is_in_exactly_one_sample() -> None:
    calls = an_agent_session(scale=100)
    assert len(calls) == 25
    folding = session_folding(credit="session", sample_tokens_max=65_536)
    for call in calls:
        folding.take(call)
    folding.take(a_report("done", calls[-1].receipt))
    made: list[ExperienceAssembled] = list(folding.emitted(ExperienceAssembled))
    assert sorted(len(each.receipts) for each in made) == [1, 3, 6, 15]
    trained = [
        token
        for each in made
        for token, bit in zip(tokens(each.token_ids), each.loss_mask, strict=True)
        if bit
    ]
    written = [token for call in calls for token in tokens(call.choices[0].token_ids)]
    assert sorted(trained) == sorted(written)
    (title,) = [each for each in made if calls[0].receipt in each.receipts]
    assert title.receipts == (calls[0].receipt,)
    assert {each.reward for each in made} == {1.0}


def test_an_empty_list_makes_nothing() -> None:
    found = assemble([], sample_tokens_max=1, realign_tokens_max=0)
    assert (found.trajectories, found.too_long) == ((), ())


def test_a_trajectory_knows_where_the_first_token_was_written() -> None:
    (only,) = assemble(turns(([1, 2, 3], [7])), sample_tokens_max=9, realign_tokens_max=0).trajectories
    assert isinstance(only, Trajectory)
    assert (only.num_prompt_tokens, only.loss_mask) == (3, Mask(b"\0\0\0\1"))
