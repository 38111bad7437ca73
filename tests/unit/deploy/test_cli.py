"""The command line: every row of its table leads somewhere, every failure is one line."""

import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from deploy.cli import ENTRIES, Entry, build, main, run
from deploy.log_reach import absent, short_name, topic_named
from schemas.topics import REJECTED, TOPICS

_HEAVY = ("torch", "transformers", "vllm", "faust", "lakefs", "fastapi", "boto3", "pyarrow", "peft")
"""What takes a second or more to import, or is needed for special cases only."""


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_every_command_exists_and_explains_itself(entry: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    member = getattr(importlib.import_module(entry.module), entry.member)
    assert isinstance(member, typer.Typer) or callable(member)
    with pytest.raises(SystemExit) as ended:
        main([entry.name, "--help"])
    assert ended.value.code == 0
    assert f"reef {entry.name}" in capsys.readouterr().out


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(entry.name in said for entry in ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_every_command_that_answers_a_question_takes_json(entry: Entry) -> None:
    command = typer.main.get_command(build(entry.name)).commands[entry.name]  # type: ignore[attr-defined]
    below = getattr(command, "commands", {"": command})
    silent = {name for name, one in below.items() if all("--json" not in p.opts for p in one.params)}
    runs = {"serve", "trainer", "release", "gateway", "streams"}
    assert silent == ({"down"} if entry.name == "stack" else {""} if entry.name in runs else set())


@pytest.mark.parametrize("words", [[], *([entry.name] for entry in ENTRIES)], ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    """What makes `reef --help` and every `reef X --help` quick, without a clock."""
    script = f"""
import sys
from deploy.cli import main
try:
    main({[*words, "--help"]})
except SystemExit:
    print("heavy:", *[name for name in {_HEAVY} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.strip() == "heavy:"


@pytest.mark.parametrize(
    "words", [["sideways"], ["--nonsense"], ["stack", "sideways"], ["stack", "up", "--without", "x"]]
)
def test_wrong_usage_is_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"reef {version('reef-stream')}\n"


def test_a_tail_of_nothing_names_the_topics(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit) as ended:
        main(["topics", "tail"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert all(short_name(topic) in said for topic in TOPICS)
    assert all(topic_named(short_name(topic)) == topic for topic in TOPICS)


def test_a_topic_that_is_not_there_yet_is_no_unknown_topic() -> None:
    assert "it is not there yet: `reef serve` creates it" in str(absent(REJECTED))
    assert "got 'reef.other.v1': see `reef topics`" in str(absent("reef.other.v1"))


def test_a_typing_error_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["stak"])
    assert "stack" in capsys.readouterr().err


def test_an_expected_failure_is_one_line_and_1(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    state = tmp_path_factory.mktemp("spoilt")
    (state / "run").mkdir()
    (state / "run" / "supervisor.json").write_text("{")
    with pytest.raises(SystemExit) as ended:
        main(["stack", "down", "--reef.state_dir", str(state)])
    assert ended.value.code == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert said[0].startswith("reef: expected a record of processes")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without /dev/full")
@pytest.mark.parametrize("words", [["serve", "--print-config"], ["doctor"], ["stack", "status", "--json"]])
def test_a_full_disk_behind_standard_output_is_one_line_and_1(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            (sys.executable, "-m", "deploy.cli", *words), stdout=full, stderr=-1, check=False, timeout=60
        )
    assert done.returncode == 1
    said = done.stderr.decode().splitlines()
    assert said == [
        "reef: expected room to write, got: No space left on device: free some space, or write elsewhere"
    ]


def test_an_interrupted_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    app = typer.Typer()
    app.command("wait")(interrupted)
    with pytest.raises(SystemExit) as ended:
        run(app, [])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "reef: interrupted\n"


def test_an_unusable_model_is_refused_configuration_and_2(tmp_path_factory: pytest.TempPathFactory) -> None:
    state = tmp_path_factory.mktemp("state")
    words = ["--kafka.bootstrap", "127.0.0.1:1", "--lakefs.url", "http://127.0.0.1:1"]
    with pytest.raises(SystemExit) as ended:
        main(["stack", "up", "--reef.state_dir", str(state), "--inference.model", "no-such", *words])
    assert ended.value.code == 2
