"""Whatever dies when: the same candidates, the same bytes, each batch once."""

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import run_ranks, save_tiny_model, start_ranks
from tests.trainer_runs import events_in, facts, go_on
from trainers.model import Lora

POINTS = ("stepped", "saved", "pointed", "exported", "announced")
NUM_BATCHES = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def undisturbed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str, str]]:
    """Six batches without any misfortune."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_ranks(1, go_on, folder, folder, model, NUM_BATCHES)
    events = events_in(folder / "events.jsonl")
    assert [event["batch_seq"] for event in events] == list(range(NUM_BATCHES))
    assert len({event["manifest_sha256"] for event in events}) == NUM_BATCHES
    return facts(events)


def killed(num_ranks: int, folder: Path, model: Path, point: str, count: int) -> None:
    """Run until the point is passed for the `count`-th time, and see it die of that."""
    (folder / "rendezvous").unlink(missing_ok=True)
    children = start_ranks(num_ranks, go_on, folder, folder, model, NUM_BATCHES, (point, count))
    for child in children:
        child.join()
    assert {child.exitcode for child in children} == {-signal.SIGKILL}


def test_three_batches_a_restart_and_three_more_are_six_bit_for_bit(
    model: Path, tmp_path: Path, undisturbed: list[tuple[int, str, str]]
) -> None:
    run_ranks(1, go_on, tmp_path, tmp_path, model, 3)
    run_ranks(1, go_on, tmp_path, tmp_path, model, NUM_BATCHES)
    assert facts(events_in(tmp_path / "events.jsonl")) == undisturbed


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_changes_nothing(
    model: Path, tmp_path: Path, undisturbed: list[tuple[int, str, str]], point: str
) -> None:
    killed(1, tmp_path, model, point, count=3)
    run_ranks(1, go_on, tmp_path, tmp_path, model, NUM_BATCHES)
    events = events_in(tmp_path / "events.jsonl")
    assert facts(events) == undisturbed
    assert not list(tmp_path.rglob(".tmp-*"))


def test_a_checkpoint_of_two_ranks_is_read_by_one(
    model: Path, tmp_path: Path, undisturbed: list[tuple[int, str, str]]
) -> None:
    run_ranks(2, go_on, tmp_path, tmp_path, model, 3)
    run_ranks(1, go_on, tmp_path, tmp_path, model, NUM_BATCHES)
    events = events_in(tmp_path / "events.jsonl")
    assert [fact[:2] for fact in facts(events)] == [fact[:2] for fact in undisturbed]
    assert {event["optimizer"] for event in events[1:]} == {"kept"}


def test_an_export_that_stands_is_left_alone_by_a_restart(model: Path, tmp_path: Path) -> None:
    """Somebody may be reading it."""
    run_ranks(1, go_on, tmp_path, tmp_path, model, 1)
    (folder,) = (tmp_path / "exports").iterdir()
    before = (folder / "model.safetensors").stat()
    run_ranks(1, go_on, tmp_path, tmp_path, model, 1)
    after = (folder / "model.safetensors").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert list((tmp_path / "exports").iterdir()) == [folder]
    assert [event["batch_seq"] for event in events_in(tmp_path / "events.jsonl")] == [0, 0]


def test_an_export_that_was_damaged_is_made_again(model: Path, tmp_path: Path) -> None:
    run_ranks(1, go_on, tmp_path, tmp_path, model, 1)
    (folder,) = (tmp_path / "exports").iterdir()
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:100])
    run_ranks(1, go_on, tmp_path, tmp_path, model, 1)
    assert (folder / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("changes", [{"critic": "separate"}, {"lora": Lora(rank=4, alpha=8.0)}], ids=str)
def test_every_kind_of_learner_goes_on_bit_for_bit(
    model: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    for name, stops in (("straight", (4,)), ("stopped", (2, 4))):
        folder = tmp_path / name
        folder.mkdir()
        for stop in stops:
            run_ranks(1, go_on, folder, folder, model, stop, (None, 0), changes)
    straight, stopped = (
        facts(events_in(tmp_path / name / "events.jsonl")) for name in ("straight", "stopped")
    )
    assert straight == stopped
    assert len(straight) == 4


@pytest.mark.faults
def test_twenty_kills_at_random_moments_change_nothing(
    model: Path, tmp_path: Path, undisturbed: list[tuple[int, str, str]]
) -> None:
    chance = random.Random(6)
    for _ in range(20):
        (tmp_path / "rendezvous").unlink(missing_ok=True)
        (child,) = start_ranks(1, go_on, tmp_path, tmp_path, model, NUM_BATCHES)
        child.join(timeout=chance.uniform(0.2, 3.0))
        child.kill()
        child.join()
    run_ranks(1, go_on, tmp_path, tmp_path, model, NUM_BATCHES)
    assert facts(events_in(tmp_path / "events.jsonl")) == undisturbed
