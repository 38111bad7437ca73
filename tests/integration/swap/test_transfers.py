"""The sender and several workers over gloo: what is sent arrives; who dies or is late breaks nobody else."""

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from reef_engine.groups import Seat
from reef_engine.tensors import Transfer
from reef_engine.transfer_info import BUCKET_BYTES_MAX
from safetensors.torch import load_file, save_file

from gateway.weight_sender import WeightSender
from schemas.errors import UnavailableError
from tests.swap_rig import until

PROJECT = Path(__file__).parents[3] / "gateway" / "engine"
Received = dict[str, torch.Tensor]


@pytest.fixture
async def sender(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WeightSender]:
    """The real child, in our own environment: it needs torch alone."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    found = WeightSender((sys.executable, "-m", "reef_engine.sender"))
    yield found
    await found.end()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Tensors of several kinds and shapes, in two files."""
    torch.manual_seed(1)
    first = {"b.weight": torch.randn(7, 5).bfloat16(), "a.bias": torch.randn(3), "scale": torch.tensor(2.5)}
    save_file(first, tmp_path / "model-00001.safetensors")
    save_file({"c.weight": torch.randn(1000, 64).bfloat16()}, tmp_path / "model-00002.safetensors")
    return tmp_path


def receive(
    port: int,
    rank: int,
    group_size: int,
    deadline_s: float = 20.0,
    *,
    is_told: bool = True,
    problem: str = "",
) -> Received:
    seat = Seat(rank=rank, group_size=group_size, deadline_s=deadline_s)
    transfer = Transfer(transport="gloo", port=port, seat=seat, device=torch.device("cpu"))
    received = {name: tensor.clone() for name, tensor in transfer.tensors()}
    if is_told:
        transfer.say_ended(problem)
    return received


def an_order(swap_id: str, num_workers: int, deadline_s: float = 20.0) -> dict[str, object]:
    return {"swap_id": swap_id, "transport": "gloo", "group_size": 1 + num_workers, "deadline_s": deadline_s}


@pytest.mark.parametrize("num_workers", [1, 3])
async def test_every_worker_gets_every_tensor_to_the_bit_again_and_again(
    sender: WeightSender, weights: Path, num_workers: int
) -> None:
    expected = load_file(weights / "model-00001.safetensors") | load_file(weights / "model-00002.safetensors")
    with ThreadPoolExecutor() as threads:
        for number in range(2):  # one child, a group for each transfer
            port = await sender.offer(an_order(f"swap-{number}", num_workers), weights)
            received = [threads.submit(receive, port, 1 + n, 1 + num_workers) for n in range(num_workers)]
            num_bytes = await sender.sent(f"swap-{number}")
            assert num_bytes == sum(tensor.nbytes for tensor in expected.values())
            for one in received:
                got = await asyncio.wrap_future(one)
                assert got.keys() == expected.keys()
                assert all(got[name].dtype == tensor.dtype for name, tensor in expected.items())
                assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())


async def test_the_sender_waits_until_a_worker_has_made_what_it_needs_of_the_weights(
    sender: WeightSender, weights: Path
) -> None:
    order = an_order("slow", 1, deadline_s=2.0)
    with ThreadPoolExecutor() as threads:
        port = await sender.offer(order, weights)
        received = await asyncio.wrap_future(threads.submit(receive, port, 1, 2, is_told=False))
        assert len(received) == 4, "every tensor came"
        with pytest.raises(UnavailableError):
            await sender.sent("slow")


async def test_what_a_worker_could_not_stage_is_said_by_the_sender(
    sender: WeightSender, weights: Path
) -> None:
    with ThreadPoolExecutor() as threads:
        port = await sender.offer(an_order("bad", 2), weights)
        fine = threads.submit(receive, port, 1, 3)
        bad = threads.submit(receive, port, 2, 3, problem="ValueError: no such tensor")
        with pytest.raises(UnavailableError, match="no such tensor") as refused:
            await sender.sent("bad")
        assert refused.value.reason == "engine_failed"
        assert len(fine.result()) == len(bad.result()) == 4


async def test_many_buckets_arrive_in_their_order(sender: WeightSender, tmp_path: Path) -> None:
    rows = BUCKET_BYTES_MAX // (4 * 1024) // 3  # three tensors fill a bucket
    expected = {f"layer.{n}": torch.full((rows, 1024), float(n)) for n in range(20)}
    save_file(expected, tmp_path / "model.safetensors")
    with ThreadPoolExecutor() as threads:
        port = await sender.offer(an_order("large", 1), tmp_path)
        got = await asyncio.wrap_future(threads.submit(receive, port, 1, 2))
        assert await sender.sent("large") == sum(tensor.nbytes for tensor in expected.values())
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())


async def test_a_worker_that_never_comes_ends_the_transfer_at_its_deadline(
    sender: WeightSender, weights: Path
) -> None:
    await sender.offer(an_order("late", 1, deadline_s=1.0), weights)
    with pytest.raises(UnavailableError) as refused:
        await sender.sent("late")
    assert refused.value.reason == "sender_failed"


async def test_a_sender_that_is_killed_is_a_failure_for_both_sides_and_the_next_order_gets_a_new_one(
    sender: WeightSender, weights: Path
) -> None:
    port = await sender.offer(an_order("killed", 2), weights)
    with ThreadPoolExecutor() as threads:
        waiting: Future[Received] = threads.submit(receive, port, 1, 3, 5.0)  # the other never comes
        first = sender.pid
        await sender.end()
        with pytest.raises(UnavailableError):
            await sender.sent("killed")
        with pytest.raises(RuntimeError):
            await asyncio.wrap_future(waiting)
        port = await sender.offer(an_order("again", 1), weights)
        assert sender.pid != first
        assert len(await asyncio.wrap_future(threads.submit(receive, port, 1, 2))) == 4
        await sender.sent("again")


async def test_a_folder_without_weights_is_refused_and_the_sender_lives_on(
    sender: WeightSender, weights: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UnavailableError, match="safetensors"):
        await sender.offer(an_order("empty", 1), empty)
    pid = sender.pid
    await sender.offer(an_order("full", 1), weights)
    assert sender.pid == pid
    await until(lambda: sender.pid is not None)
