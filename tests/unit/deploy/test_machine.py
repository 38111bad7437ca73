"""What programs say of their version is read, whatever stands around it; and what a processor can do."""

import pytest

from deploy.checks import Version
from deploy.embedded.processor import names_bf16
from deploy.machine import java_major, version_in


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
