"""Who is who in a transfer group, and what both sides agree on before a number moves."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reef_engine.ranks import WorkerPlace, group_rank, require_distinct_devices
from reef_engine.transfer_info import (
    ALIGNED_BYTES,
    TensorForm,
    buckets_of,
    decode_forms,
    encode_forms,
    forms_in,
)

from gateway.target import first_ranks
from gateway.transport import choose_transport

engines = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=5)
"""Replicas and workers of a replica, engine by engine."""


@given(engines)
def test_every_worker_of_every_engine_has_a_rank_of_its_own_after_the_sender(
    shape: list[tuple[int, int]],
) -> None:
    nums_workers = tuple(replicas * size for replicas, size in shape)
    group_size = 1 + sum(nums_workers)
    ranks = [
        group_rank(
            WorkerPlace(rank=rank, world_size=size, data_parallel_index=replica),
            first_rank=first,
            group_size=group_size,
        )
        for (replicas, size), first in zip(shape, first_ranks(nums_workers), strict=True)
        for replica in range(replicas)
        for rank in range(size)
    ]
    assert ranks == list(range(1, group_size))


def test_a_worker_that_was_not_counted_is_refused() -> None:
    place = WorkerPlace(rank=1, world_size=2, data_parallel_index=0)
    assert group_rank(place, first_rank=1, group_size=3) == 2
    with pytest.raises(ValueError, match="another number of workers"):
        group_rank(place, first_rank=1, group_size=2)


@given(st.lists(st.uuids().map(str), unique=True, min_size=1, max_size=8), st.data())
def test_two_ranks_on_one_gpu_are_refused_and_named(devices: list[str], data: st.DataObject) -> None:
    require_distinct_devices(devices)
    twice = data.draw(st.sampled_from(devices))
    with pytest.raises(ValueError, match=f"ranks {devices.index(twice)} and {len(devices)}"):
        require_distinct_devices([*devices, twice])


forms = st.builds(
    TensorForm,
    name=st.text(min_size=1),
    dtype=st.sampled_from(["bfloat16", "float32", "int64"]),
    shape=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
)


@given(st.lists(forms))
def test_a_list_of_tensors_is_read_as_it_was_written(written: list[TensorForm]) -> None:
    assert decode_forms(encode_forms(written)) == tuple(written)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "os.system"])
def test_numbers_of_an_unknown_kind_are_refused(dtype: str) -> None:
    header = json.dumps({"w": {"dtype": dtype, "shape": [1], "data_offsets": [0, 1]}}).encode()
    with pytest.raises(ValueError, match="bfloat16"):
        forms_in(header)
    with pytest.raises(ValueError, match="bfloat16"):
        decode_forms(json.dumps([["w", dtype, [1]]]))


@pytest.mark.parametrize(
    ("asked", "is_on_gpu", "num_gpus", "has_sender", "chosen"),
    [
        ("auto", True, 2, True, "nccl"),
        ("auto", True, 1, True, "folder"),  # the sender would need a GPU of its own
        ("auto", False, 0, True, "gloo"),
        ("auto", False, 0, False, "folder"),
        ("gloo", True, 2, True, "gloo"),
        ("gloo", False, 0, False, "folder"),
    ],
)
def test_the_road_of_the_weights_follows_the_machine(
    asked: str, is_on_gpu: bool, num_gpus: int, has_sender: bool, chosen: str
) -> None:
    found = choose_transport(
        asked,  # type: ignore[arg-type]  # one of the words
        is_on_gpu=is_on_gpu,
        num_gpus=num_gpus,
        has_sender=has_sender,
    )
    assert found == chosen


small_forms = st.builds(
    TensorForm,
    name=st.text(min_size=1),
    dtype=st.sampled_from(["bfloat16", "float32", "int64", "bool"]),
    shape=st.lists(st.integers(0, 12), max_size=3).map(tuple),
)


@given(st.lists(small_forms), st.integers(1, 4_096))
def test_tensors_travel_in_their_order_in_buckets_of_a_limited_size(
    forms: list[TensorForm], bytes_max: int
) -> None:
    found = list(buckets_of(forms, bytes_max))
    assert [form for bucket in found for form in bucket.forms] == forms
    for bucket in found:
        ends = [at + form.num_bytes for at, form in zip(bucket.offsets, bucket.forms, strict=True)]
        assert all(begin % ALIGNED_BYTES == 0 for begin in bucket.offsets)
        assert all(end <= begin for end, begin in zip(ends, bucket.offsets[1:], strict=False))
        assert bucket.num_bytes == max(ends)
        assert bucket.num_bytes <= bytes_max or len(bucket.forms) == 1
    for one, following in pairwise(found):
        begin = -(-one.num_bytes // ALIGNED_BYTES) * ALIGNED_BYTES
        assert begin + following.forms[0].num_bytes > bytes_max, "it would have had room"
