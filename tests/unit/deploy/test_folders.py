"""Things are made once, appear whole or not at all, and one process at a time makes them."""

from pathlib import Path
from threading import Thread

import pytest

from deploy.folders import held_lock, made_once, make_folder, write_whole
from schemas.errors import UnavailableError


def test_a_thing_is_made_once_for_all_who_ask(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "part").write_text("whole")

    threads = [
        Thread(target=made_once, args=(tmp_path / "thing", make), kwargs={"wait_s": 30}) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert (tmp_path / "thing" / "part").read_text() == "whole"


def test_a_making_that_fails_leaves_nothing_and_the_next_one_starts_afresh(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise UnavailableError("no network")

    with pytest.raises(UnavailableError):
        made_once(tmp_path / "thing", fail, wait_s=1)
    assert not (tmp_path / "thing").exists()
    made_once(tmp_path / "thing", lambda folder: (folder / "part").touch(), wait_s=1)
    assert [path.name for path in (tmp_path / "thing").iterdir()] == ["part"]


def test_a_held_lock_is_waited_for_and_then_an_error(tmp_path: Path) -> None:
    with (
        held_lock(tmp_path / "lock", wait_s=1),
        pytest.raises(UnavailableError, match="lock"),
        held_lock(tmp_path / "lock", wait_s=0),
    ):
        pass
    with held_lock(tmp_path / "lock", wait_s=0):
        pass


def test_a_file_is_replaced_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_whole(path, b"first", mode=0o600)
    write_whole(path, b"second", mode=0o600)
    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_file_in_place_of_a_folder_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(UnavailableError, match=r"reef\.state_dir"):
        make_folder(tmp_path / "state", setting="reef.state_dir")
