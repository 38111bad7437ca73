import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask

from schemas.packed import floats, tokens
from tests.tiny import a_batch
from trainers.attention import document_block_mask, document_mask
from trainers.packing import pack, packs_of, plan_packs, stand_in

lengths = st.lists(st.integers(2, 40), min_size=1, max_size=20)
unhurried = settings(deadline=None)


@unhurried
@given(lengths, st.integers(1, 5), st.integers(2, 60))
def test_each_sample_is_in_exactly_one_pack_and_all_ranks_have_equally_many(
    lengths: list[int], num_ranks: int, pack_tokens_max: int
) -> None:
    plan = plan_packs(lengths, num_ranks=num_ranks, pack_tokens_max=pack_tokens_max)
    packs = [indices for rank in plan for indices in rank]
    assert len(plan) == num_ranks
    assert len({len(rank) for rank in plan}) == 1
    assert sorted(index for indices in packs for index in indices) == list(range(len(lengths)))
    for indices in packs:
        assert len(indices) <= 1 or sum(lengths[index] for index in indices) <= pack_tokens_max


def test_samples_are_spread_over_ranks_even_when_one_pack_could_hold_all() -> None:
    plan = plan_packs([10, 10, 10, 10], num_ranks=2, pack_tokens_max=1_000)
    assert [[len(indices) for indices in rank] for rank in plan] == [[2], [2]]


def test_a_rank_without_samples_gets_a_stand_in_without_actions() -> None:
    batch = a_batch(0, num_samples=1)
    given = [packs_of(batch, rank=rank, num_ranks=2, pack_tokens_max=64) for rank in range(2)]
    assert [len(packs) for packs in given] == [1, 1]
    assert given[1][0].num_tokens == 2
    assert not given[1][0].action_mask.any()


def test_a_pack_holds_what_the_samples_say() -> None:
    batch = a_batch(3, num_samples=4)
    packed = pack(batch.experiences, base_release_seq=2)
    at = 0
    for row, experience in enumerate(batch.experiences):
        ids = tokens(experience.token_ids).tolist()
        mask = np.frombuffer(experience.loss_mask, dtype=np.bool_)
        num = len(ids)
        assert packed.token_ids[at : at + num].tolist() == ids
        assert packed.positions[at : at + num].tolist() == list(range(num))
        assert set(packed.documents[at : at + num].tolist()) == {row}
        own = packed.behavior_logprobs[row][packed.action_mask[row]]
        assert own.tolist() == floats(experience.logprobs)[mask].tolist()
        at += num
    assert at == packed.num_tokens
    chosen = [
        t
        for e in batch.experiences
        for t, m in zip(tokens(e.token_ids).tolist(), e.loss_mask, strict=True)
        if m
    ]
    assert packed.action_ids.tolist() == chosen
    assert packed.token_ids[packed.action_places + 1].tolist() == chosen
    assert packed.policy_lags.tolist() == [2.0] * 4
    assert packed.temperatures.shape == packed.action_ids.shape


def test_a_token_looks_back_within_its_document_only() -> None:
    packed = pack(a_batch(1, num_samples=3).experiences, base_release_seq=0)
    mask = document_mask(packed.documents, packed.positions)[0, 0]
    for at in range(packed.num_tokens):
        for to in range(packed.num_tokens):
            expected = packed.documents[at] == packed.documents[to] and to <= at
            assert bool(mask[at, to]) == bool(expected)


def test_the_block_mask_for_cuda_says_the_same() -> None:
    packed = pack(a_batch(1, num_samples=3).experiences, base_release_seq=0)
    block = document_block_mask(packed.documents, packed.positions)
    n = torch.arange(packed.num_tokens)
    zero = torch.zeros((), dtype=torch.int64)
    dense = block.mask_mod(zero, zero, n[:, None], n[None, :])
    assert torch.equal(dense, document_mask(packed.documents, packed.positions)[0, 0])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.integers(1, 40), st.integers(1, 300)), min_size=1, max_size=6))
@example([1])
@example([128, 128])
@example([512])
@example([513, 100])
def test_the_blocks_for_cuda_are_those_that_every_pair_of_tokens_gives(lengths: list[int]) -> None:
    documents = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    positions = torch.cat([torch.arange(length) for length in lengths])
    found = document_block_mask(documents, positions)
    num = sum(lengths)
    expected = create_block_mask(found.mask_mod, B=1, H=None, Q_LEN=num, KV_LEN=num, device="cpu")
    for kind in ("kv", "full_kv", "q", "full_q"):
        for name in (f"{kind}_num_blocks", f"{kind}_indices"):
            mine, its = getattr(found, name), getattr(expected, name)
            torch.testing.assert_close(mine, its, atol=0, rtol=0, check_stride=True)
    assert (found.seq_lengths, found.BLOCK_SIZE) == (expected.seq_lengths, expected.BLOCK_SIZE)


@pytest.mark.parametrize("num_samples", [1, 7])
def test_a_pack_counts_the_whole_batch_for_its_objective(num_samples: int) -> None:
    batch = a_batch(2, num_samples=num_samples)
    packed = stand_in()
    actions = packed.actions(torch.zeros((0, 4)), place=0, batch=batch)
    assert actions.num_samples == num_samples
    assert actions.num_actions == sum(sum(e.loss_mask) for e in batch.experiences)
    assert actions.all_rewards.tolist() == pytest.approx([e.reward for e in batch.experiences])
