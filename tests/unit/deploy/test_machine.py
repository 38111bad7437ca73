"""What programs say of their version is read, whatever stands around it; and what a processor can do."""

from pathlib import Path

import pytest

from deploy.checks import Version
from deploy.embedded.processor import names_bf16
from deploy.machine import java_major, state_dir_problem, version_in


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("\x1b[1mApache Maven 3.8.7\x1b[m\nMaven home: /usr/share/maven", (3, 8, 7)),
        ("openjdk 17.0.15 2025-04-15\nOpenJDK Runtime Environment", (17, 0, 15)),
        ("openjdk 21 2023-09-19", (21,)),
        ("nothing", ()),
    ],
)
def test_a_version_is_read(said: str, version: Version) -> None:
    assert version_in(said) == version


@pytest.mark.parametrize(("version", "major"), [((17, 0, 15), 17), ((21,), 21), ((1, 8, 0), 8), ((), 0)])
def test_java_s_major_version_is_the_one_people_mean(version: Version, major: int) -> None:
    assert java_major(version) == major


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16\n", True),
        ("flags\t\t: fpu amx_bf16 amx_tile\nflags\t\t: fpu\n", True),
        ("Features\t: fp asimd bf16\n", True),
        ("flags\t\t: fpu avx2 avx512f\nbugs\t\t: bf16\n", False),
        ("", False),
    ],
)
def test_bf16_is_used_where_the_processor_has_it(cpuinfo: str, expected: bool) -> None:
    assert names_bf16(cpuinfo) is expected


def test_a_state_folder_is_tried_and_nothing_is_left(tmp_path: Path) -> None:
    assert state_dir_problem(tmp_path / "a" / "b") is None
    assert state_dir_problem(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_a_state_folder_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert state_dir_problem(tmp_path / "empty") is None
    assert (tmp_path / "empty").is_dir()


def test_a_state_folder_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "file/below", "link", "x" * 300):
        assert "reef.state_dir" in (state_dir_problem(tmp_path / name) or ""), name
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a system without /proc")
def test_a_file_system_that_refuses_only_when_tried_is_a_problem() -> None:
    assert "reef.state_dir" in (state_dir_problem(Path("/proc/reef-state")) or "")
