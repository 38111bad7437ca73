"""What --print-config prints can be loaded again and means the same; secrets are named, never shown."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import Typer
from typer.testing import CliRunner

from deploy.commands.serve import serve
from deploy.configuration import OVERRIDES_ALLOWED
from schemas.settings.load import Loaded, load_settings
from schemas.settings.printed import flow, printed
from schemas.settings.yaml_text import read_yaml

TOKEN = "a-token-of-some-length"
KEYS = {"REEF_RECEIPT_KEYS": "0123456789abcdef"}
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    [
        "${X}",
        "$${",
        "null",
        "1",
        "true",
        "# no",
        "a: b",
        "- a",
        "'",
        '"',
        "\\",
        "{}",
        "[",
        "*a",
        "&a",
        "2020-01-01",
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
finite = st.floats(0.001, 1e15)
scenario_lists = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.from_regex(r"[a-z0-9][a-z0-9-]{1,20}[a-z0-9]", fullmatch=True),
            "target": st.just("lora"),
        },
        optional={"batch_size": st.integers(1, 9), "credit": st.sampled_from(["turn", "session"])},
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one["name"],
)
trees = st.fixed_dictionaries(
    {},
    optional={
        "reef": st.fixed_dictionaries(
            {},
            optional={
                "scenarios": scenario_lists,
                "batch_size": st.integers(1, 65_536),
                "feedback_scores": st.dictionaries(
                    st.from_regex(r"[a-z$#{:'\"é]{1,8}", fullmatch=True), st.floats(-1, 1), max_size=3
                ),
                "tokens": st.just([{"token_env": "T", "scopes": ["read"]}]),
                "state_dir": st.from_regex(r"[a-zA-Z0-9/_${}# é-]{1,20}", fullmatch=True),
                "score_abs_max": finite,
                "allow_implicit_scenario_creation": st.booleans(),
            },
        ),
        "inference": st.fixed_dictionaries(
            {},
            optional={
                "model": texts,
                "engine": st.sampled_from(["http://h:1", ["http://a:1", "http://b:2"], "embedded"]),
                "engine_args": st.lists(texts, max_size=3),
                "sampling_defaults": st.fixed_dictionaries({}, optional={"temperature": st.floats(0, 2)}),
                "timeout_s": finite,
            },
        ),
        "training": st.fixed_dictionaries(
            {}, optional={"learning_rate": st.floats(0, 1), "threads": st.none() | st.integers(1, 64)}
        ),
        "evaluation": st.fixed_dictionaries(
            {}, optional={"config": st.dictionaries(texts, json_values, max_size=3)}
        ),
        "blobs": st.fixed_dictionaries({}, optional={"url": st.just("s3://bucket/x")}),
        "streams": st.fixed_dictionaries({}, optional={"tick_s": st.floats(0.1, 60)}),
    },
)


def load_text(text: str, environ: Mapping[str, str]) -> Loaded:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "serve.yaml"
        file.write_text(text, encoding="utf-8")
        return load_settings(file, (), environ)


@given(json_values)
def test_a_value_in_one_line_reads_back_as_itself(value: Any) -> None:
    root, problems = read_yaml(f"key: {flow(value)}  # comment", "x", {})
    assert problems == []
    assert root is not None
    assert root.plain == {"key": value}


@given(trees)
def test_what_is_printed_loads_again_as_the_same_settings(tree: dict[str, Any]) -> None:
    environ = {"T": TOKEN}
    first = load_text(flow(tree), environ)
    again = load_text(printed(first.settings, first.sources), environ)
    assert again.settings == first.settings
    assert printed(again.settings, {}) == printed(first.settings, {})


def test_every_line_says_where_its_value_came_from() -> None:
    read = load_settings(None, ["--kafka.port", "7"], {"REEF_LAKEFS__PORT": "8"})
    lines = printed(read.settings, read.sources).splitlines()
    assert all("  # " in line for line in lines if not line.endswith(":"))
    assert "  port: 7  # command line" in lines
    assert "  port: 8  # environment REEF_LAKEFS__PORT" in lines
    assert "  port: 8900  # default" in lines
    assert '    protocol: "PLAINTEXT"  # default' in lines


@pytest.mark.parametrize(
    ("environ", "overrides", "name"),
    [
        ({"MINE": TOKEN}, ["--reef.token", "${MINE:?}"], "MINE"),
        ({"REEF_REEF__TOKEN": TOKEN}, [], "REEF_REEF__TOKEN"),
    ],
)
def test_a_secret_is_printed_by_its_name_and_loads_again(
    environ: dict[str, str], overrides: list[str], name: str
) -> None:
    read = load_settings(None, overrides, environ)
    text = printed(read.settings, read.sources)
    assert TOKEN not in text
    assert f"token: ${{{name}}}  # " in text
    assert "******** masked" in text
    assert load_text(text, environ).settings == read.settings


def app() -> Typer:
    commands = Typer()
    commands.command("serve", context_settings=OVERRIDES_ALLOWED)(serve)
    commands.command("other")(lambda: None)
    return commands


def run(*words: str, environ: Mapping[str, str] | None = None) -> Any:
    return CliRunner().invoke(app(), ["serve", *words], env=dict(environ or {}))


def test_print_config_prints_and_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "serve.yaml"
    file.write_text("reef:\n  batch-size: 3\n")
    environ = {"REEF_KAFKA__PARTITIONS": "2", "MINE": TOKEN}
    done = run(
        "-c", "serve.yaml", "--reef.port", "9001", "--print-config", "--reef.token=${MINE}", environ=environ
    )
    assert done.exit_code == 0, done.output
    assert "  batch_size: 3  # serve.yaml:2" in done.stdout
    assert "  port: 9001  # command line" in done.stdout
    assert "  partitions: 2  # environment REEF_KAFKA__PARTITIONS" in done.stdout
    assert TOKEN not in done.output
    assert [entry.name for entry in tmp_path.iterdir()] == ["serve.yaml"]
    assert load_text(done.stdout, environ | KEYS).settings.reef.port == 9001


def test_a_refused_configuration_exits_with_two_and_names_every_mistake() -> None:
    done = run("--reef.prot", "1", "--kafka.port", "x", "--print-config")
    assert done.exit_code == 2
    assert "did you mean port?" in done.stderr
    assert "kafka.port: expected a whole number" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ("--lakefs.url", "http://somebody:sekret@h/"),
        ("--inference.engine", "http://somebody:sekret@h:1/"),
        ("--kafka.security.protocol", "SASL_SSL", "--kafka.security.password_env", "sekret"),
    ],
)
def test_a_refusal_never_repeats_a_password(words: tuple[str, ...]) -> None:
    done = run(*words, "--print-config")
    assert done.exit_code == 2
    assert words[0].removeprefix("--").rpartition(".")[0] in done.stderr
    assert "sekret" not in done.output
