"""The doctor's verdicts: what is missing is named, with what to run, and nothing else is asked for."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.checks import DISK_BYTES_FIRST, GB, MEMORY_BYTES_MIN, Facts, Outcome, judge_machine
from schemas.settings import InferenceSettings, KafkaSettings, LakefsSettings, Settings

README = Path(__file__).parents[3] / "README.md"
HEALTHY = Facts(
    settings=Settings(),
    python=(3, 11, 7),
    uv="/cache/uv/bin/uv",
    java=17,
    maven=(3, 8, 7),
    go=(1, 26, 8),
    has_jars=False,
    has_lakefs=False,
    has_engine=False,
    disk_free_bytes=100 * GB,
    memory_bytes=24 * GB,
    ports_of_others=(),
    state_dir_problem=None,
)


def _outcomes(facts: Facts) -> dict[str, Outcome]:
    return {verdict.name: verdict.outcome for verdict in judge_machine(facts)}


def test_a_machine_that_has_everything_is_well() -> None:
    assert set(_outcomes(HEALTHY).values()) == {"ok"}


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("Python", replace(HEALTHY, python=(3, 12, 1))),
        ("uv", replace(HEALTHY, uv=None)),
        ("JDK", replace(HEALTHY, java=None)),
        ("JDK", replace(HEALTHY, java=16)),
        ("JDK", replace(HEALTHY, java=0)),
        ("Maven", replace(HEALTHY, maven=None)),
        ("Maven", replace(HEALTHY, maven=(3, 5, 9))),
        ("Maven", replace(HEALTHY, maven=())),
        ("Go", replace(HEALTHY, go=None)),
        ("Go", replace(HEALTHY, go=(1, 20, 14))),
        ("disk", replace(HEALTHY, disk_free_bytes=24 * GB)),
        ("reef.state_dir", replace(HEALTHY, state_dir_problem="a file is there")),
        ("kafka.port", replace(HEALTHY, ports_of_others=(9_092,))),
        ("lakefs.port", replace(HEALTHY, ports_of_others=(8_000,))),
        ("inference.port", replace(HEALTHY, ports_of_others=(8_901,))),
        ("reef.port", replace(HEALTHY, ports_of_others=(8_900,))),
    ],
)
def test_what_is_in_the_way_is_the_only_complaint_and_comes_with_advice(name: str, facts: Facts) -> None:
    bad = [verdict for verdict in judge_machine(facts) if verdict.outcome != "ok"]
    assert [(verdict.name, verdict.is_obstacle) for verdict in bad] == [(name, True)]
    assert bad[0].outcome == {"reef.state_dir": "unusable"}.get(
        name, "taken" if name.endswith(".port") else "missing"
    )
    assert bad[0].advice
    assert bad[0].found


def test_little_memory_is_a_warning() -> None:
    verdicts = judge_machine(replace(HEALTHY, memory_bytes=11 * GB))
    assert [verdict.outcome for verdict in verdicts if verdict.name == "memory"] == ["warning"]
    assert not any(verdict.is_obstacle for verdict in verdicts)


def test_the_readme_asks_for_what_the_doctor_looks_for() -> None:
    asked = re.findall(r"(\d+) GB of disk and (\d+) GB of memory", README.read_text(encoding="utf-8"))
    assert asked == [(str(DISK_BYTES_FIRST // GB), str(MEMORY_BYTES_MIN // GB))]


def test_what_is_built_needs_no_builder() -> None:
    built = replace(HEALTHY, maven=None, go=None, has_jars=True, has_lakefs=True, has_engine=True)
    assert set(_outcomes(replace(built, disk_free_bytes=3 * GB)).values()) == {"ok"}
    assert _outcomes(replace(built, java=None))["JDK"] == "missing"  # jars still have to run


def test_dependencies_elsewhere_need_nothing_here() -> None:
    remote = Settings(
        kafka=KafkaSettings(bootstrap="kafka.example:9092"),
        lakefs=LakefsSettings(url="http://lakefs.example:8000"),
        inference=InferenceSettings(engine=("http://engine.example:8000",)),
    )
    bare = replace(HEALTHY, settings=remote, java=None, maven=None, go=None, memory_bytes=2 * GB)
    taken = replace(bare, ports_of_others=(9_092, 8_000, 8_901))
    assert set(_outcomes(taken).values()) == {"ok"}
    assert "kafka.port" not in _outcomes(taken)
