"""A configuration is read from four places, the nearest hand wins, every mistake has its line."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.settings import Settings
from schemas.settings.load import Loaded, load_settings
from schemas.settings.problems import ConfigurationError

ROOT = Path(__file__).parents[2]
THREE_LINES = ROOT / "recipes/sao/examples/sao/serve.yaml"
TOKEN = "a-token-of-some-length"


def loaded(
    folder: Path, text: str = "", overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Loaded:
    file = folder / "serve.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, overrides, environ or {})


def mistakes(
    folder: Path, text: str = "", overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        loaded(folder, text, overrides, environ)
    assert refused.value.reason == "configuration"
    return [str(problem).replace(f"{folder}/", "") for problem in refused.value.problems]


def test_nothing_given_runs_everything_embedded() -> None:
    settings = load_settings(None, (), {}).settings
    assert settings.kafka.is_embedded
    assert settings.lakefs.is_embedded
    assert settings.inference.is_embedded
    assert settings.inference.model == "smollm2-135m"
    assert (settings.reef.host, settings.reef.port) == ("127.0.0.1", 8900)
    assert [scenario.name for scenario in settings.reef.scenarios] == ["default"]


def test_the_windows_are_those_of_the_rules() -> None:
    streams, hour_s = Settings().streams, 3_600
    assert (streams.join_window_s, streams.orphan_window_s) == (24 * hour_s, 24 * hour_s)
    assert (streams.dedup_window_s, streams.buffer_max_age_s) == (48 * hour_s, 7 * 24 * hour_s)
    assert (streams.orphans_max, streams.max_calls_per_route) == (100_000, 10_000)
    assert Settings().kafka.retention_days == 14


def test_the_three_lines_of_the_announcement_are_a_configuration() -> None:
    read = load_settings(THREE_LINES, (), {})
    assert read.settings.reef.recipe == "recipes.sao.recipe:SAORecipe"
    assert read.settings.reef.options["batch_size"] == 1
    assert read.settings.reef.options["max_staleness"] == 18
    assert read.sources["reef.batch_size"].place == f"{THREE_LINES}:4"
    assert read.sources["reef.eps_low"].kind == "default"


@pytest.mark.parametrize(
    ("in_environment", "in_file", "said", "wins", "kind"),
    [
        (False, False, False, 8, "default"),
        (True, False, False, 11, "environment"),
        (True, True, False, 12, "file"),
        (True, True, True, 13, "command line"),
        (False, False, True, 13, "command line"),
        (False, True, False, 12, "file"),
    ],
)
def test_command_line_beats_file_beats_environment_beats_default(
    tmp_path: Path, in_environment: bool, in_file: bool, said: bool, wins: int, kind: str
) -> None:
    read = loaded(
        tmp_path,
        "kafka:\n  partitions: 12\n" if in_file else "",
        ["--kafka.partitions", "13"] if said else [],
        {"REEF_KAFKA__PARTITIONS": "11"} if in_environment else {},
    )
    assert read.settings.kafka.partitions == wins
    assert read.sources["kafka.partitions"].kind == kind


def test_a_source_names_variable_or_line(tmp_path: Path) -> None:
    read = loaded(tmp_path, "kafka:\n  port: 1\n", environ={"REEF_LAKEFS__PORT": "2"})
    assert read.sources["kafka.port"].place == f"{tmp_path}/serve.yaml:2"
    assert read.sources["lakefs.port"].place == "environment REEF_LAKEFS__PORT"
    assert read.sources["reef.port"].place == "default"


def test_a_recipes_options_are_set_like_any_key(tmp_path: Path) -> None:
    environ = {"REEF_REEF__MAX_STALENESS": "7", "REEF_REEF__FEEDBACK_SCORES": '{"Wrong answer": 0, good: 1}'}
    read = loaded(tmp_path, "reef: {credit: session}", ["--reef.batch-size=3"], environ)
    options = read.settings.reef.options
    assert (options["batch_size"], options["max_staleness"], options["credit"]) == (3, 7, "session")
    assert options["feedback_scores"] == {"wrong answer": 0.0, "good": 1.0}
    assert read.sources["reef.batch_size"].kind == "command line"


@pytest.mark.parametrize("key", ["max_calls_per_route", "max-calls-per-route", "max-calls_per-route"])
def test_hyphen_and_underscore_are_equal_everywhere(tmp_path: Path, key: str) -> None:
    assert loaded(tmp_path, f"streams:\n  {key}: 5\n").settings.streams.max_calls_per_route == 5
    assert loaded(tmp_path, "", [f"--streams.{key}", "5"]).settings.streams.max_calls_per_route == 5
    token = "reef: {tokens: [{token-env: T, scopes: [read]}]}"
    assert loaded(tmp_path, token, environ={"T": TOKEN}).settings.reef.tokens[0].token_env == "T"


def test_groups_and_single_keys_within_them_are_set_from_anywhere(tmp_path: Path) -> None:
    read = loaded(
        tmp_path,
        "kafka:\n  security:\n    protocol: SASL_SSL\n    username-env: U\n",
        ["--kafka.security.password_env", "P", "--inference.engine-args", "[--max-num-seqs, '8']"],
        {
            "REEF_KAFKA__SECURITY__MECHANISM": "PLAIN",
            "REEF_INFERENCE__SAMPLING_DEFAULTS": "{top-p: 0.5}",
            "U": "u",
            "P": "p",
        },
    )
    security = read.settings.kafka.security
    assert (security.protocol, security.mechanism) == ("SASL_SSL", "PLAIN")
    assert (security.username_env, security.password_env) == ("U", "P")
    assert read.settings.inference.engine_args == ("--max-num-seqs", "8")
    assert read.settings.inference.sampling_defaults.top_p == 0.5


@pytest.mark.parametrize(
    ("written", "environ", "value"),
    [
        ("${MODEL}", {"MODEL": "tiny"}, "tiny"),
        ("${MODEL}", {"MODEL": "17"}, "17"),
        ("'${MODEL}'", {"MODEL": "tiny"}, "tiny"),
        ("${MODEL:?}", {"MODEL": "tiny"}, "tiny"),
        ("${MODEL:-tiny}", {}, "tiny"),
        ("${MODEL:-tiny}", {"MODEL": ""}, "tiny"),
        ("/models/${A}-${B:-x}", {"A": "a"}, "/models/a-x"),
        ("$${MODEL}", {"MODEL": "tiny"}, "${MODEL}"),
        ("$5 and $$", {}, "$5 and $$"),
        ("${A}", {"A": "${B}", "B": "never"}, "${B}"),
    ],
)
def test_variables_are_expanded_once(
    tmp_path: Path, written: str, environ: dict[str, str], value: str
) -> None:
    assert (
        loaded(tmp_path, f"inference:\n  model: {written}\n", environ=environ).settings.inference.model
        == value
    )


def test_a_variable_may_hold_a_number_or_a_list(tmp_path: Path) -> None:
    text = "reef: {port: '${PORT}'}\ntraining: {threads: '${T}'}\n"
    text += "inference: {engine: '${ENGINES}', engine_args: '${ARGS}'}\n"
    environ = {"PORT": "81", "ENGINES": "[http://a:1, http://b:2/]", "ARGS": '["-x"]', "T": ""}
    settings = loaded(tmp_path, text, environ=environ).settings
    assert settings.reef.port == 81
    assert settings.inference.engine_urls == ("http://a:1", "http://b:2")
    assert settings.inference.engine_args == ("-x",)
    assert settings.training.threads is None


@pytest.mark.parametrize(
    ("written", "environ", "said"),
    [
        ("${NAME}", {}, "the environment variable NAME to be set"),
        ("${NAME:?}", {"NAME": ""}, "the environment variable NAME to be set"),
        ("${NAME:?pick a model}", {}, "(pick a model)"),
        ("${NAME", {}, "write $${"),
        ("${1}", {}, "write $${"),
        ("${NAME:+x}", {"NAME": "a"}, "write $${"),
    ],
)
def test_a_variable_that_is_not_there_is_a_mistake_with_a_line(
    tmp_path: Path, written: str, environ: dict[str, str], said: str
) -> None:
    (mistake,) = mistakes(tmp_path, f"inference:\n  port: 1\n  model: '{written}'\n", environ=environ)
    assert mistake.startswith("serve.yaml:3: inference.model: expected ")
    assert said in mistake


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "reef:\n  bach_size: 1\n",
            "serve.yaml:2: reef.bach_size: expected a known key, got 'bach_size': did you mean batch_size?",
        ),
        ("reff: {}\n", "serve.yaml:1: reff: expected a known section, got 'reff': did you mean reef?"),
        (
            "reef:\n  learning_rate: 1\n",
            "serve.yaml:2: reef.learning_rate: expected a known key, got 'learning_rate': did you me",
        ),
        (
            "kafka:\n  port: 1\n  port: 2\n",
            "serve.yaml:3: kafka.port: expected the key once, got it in line 2 already",
        ),
        (
            "reef:\n  batch-size: 1\n  batch_size: 2\n",
            "serve.yaml:3: reef.batch_size: expected the key once, got it in line 2 already (- and _",
        ),
        (
            "reef:\n  options: {}\n",
            "serve.yaml:2: reef.options: expected a known key, got 'options': did you mean",
        ),
        (
            "kafka:\n  security:\n    protcol: SSL\n",
            "serve.yaml:3: kafka.security.protcol: expected a known key, got 'protcol': did you mean",
        ),
        ("kafka:\n  port: many\n", 'serve.yaml:2: kafka.port: expected a whole number, got "many"'),
        (
            "kafka:\n  port: 70000\n",
            "serve.yaml:2: kafka.port: expected a value less than or equal to 65535, got 70000",
        ),
        ("kafka:\n  port: true\n", "serve.yaml:2: kafka.port: expected no true or false here, got true"),
        ("kafka:\n  port: [1]\n", "serve.yaml:2: kafka.port: expected a whole number, got [1]"),
        ("reef:\n  batch_size: true\n", "serve.yaml:2: reef.batch_size: expected no true or false here"),
        (
            "reef:\n  batch_size: 0\n",
            "serve.yaml:2: reef.batch_size: expected a value greater than or equal to 1, got 0",
        ),
        ("reef:\n  score_abs_max: .inf\n", "serve.yaml:2: reef.score_abs_max: expected a finite number"),
        ("reef:\n  recipe: 5\n", "serve.yaml:2: reef.recipe: expected text, got 5"),
        ("reef:\n  recipe: no.such:Recipe\n", "reef.recipe: expected 'no.such:Recipe' to be importable"),
        (
            "reef:\n  outbox_full: wait\n",
            "serve.yaml:2: reef.outbox_full: expected 'drop_oldest' or 'refuse', got \"wait\"",
        ),
        (
            "reef:\n  scenarios: [x]\n",
            "serve.yaml:2: reef.scenarios[0].name: expected a scenario name of 3 to 56",
        ),
        (
            "reef:\n  scenarios:\n  - abc\n  - name: def\n    target: lora\n    crtic: head\n",
            "serve.yaml:6: reef.scenarios[1].crtic: expected a known key, got 'crtic': did you mean critic?",
        ),
        (
            "reef:\n  scenarios:\n  - name: abc\n    batch-size: no\n",
            "serve.yaml:4: reef.scenarios[0].batch_size: expected a whole number",
        ),
        (
            "reef:\n  scenarios: [abc, ABC]\n",
            "serve.yaml:2: reef.scenarios: expected each scenario once, got abc again",
        ),
        ("reef:\n  scenarios: []\n", "serve.yaml:2: reef.scenarios: expected it to have at least 1 item"),
        ("reef:\n  eps_low: 0.8\n", "serve.yaml:2: reef.eps_low: expected eps_low and eps_high together"),
        ("kafka: 5\n", "serve.yaml:1: kafka: expected keys and values, got 5"),
        ("- a\n", "serve.yaml:1: expected keys and values"),
        ("kafka: {port: 1\n", "serve.yaml:2: expected YAML, got a mistake"),
        ("a: 1\n---\nb: 2\n", "serve.yaml:2: expected YAML, got a mistake"),
        ("kafka:\n\tport: 1\n", "serve.yaml:2: expected YAML, got a mistake"),
        ("[" * 5_000, "serve.yaml: expected a few levels"),
        ("#" * 1_048_577, "serve.yaml: expected at most 1048576 characters"),
        ("base: &b {port: 1}\nkafka:\n  <<: *b\n", "serve.yaml:3: kafka: expected a plain word as key"),
        ("inference:\n  engine: ftp://x\n", "serve.yaml:2: inference.engine[0]: expected a URL such as http"),
        ("kafka:\n  bootstrap: host\n", "serve.yaml:2: kafka.bootstrap: expected embedded, or host:port"),
        ("blobs:\n  url: /tmp\n", "serve.yaml:2: blobs.url: expected file:///folder or s3://bucket/prefix"),
        (
            "evaluation:\n  module: metric_bound\n",
            "serve.yaml:2: evaluation.module: expected a path such as package.module:Name",
        ),
        (
            "reef:\n  tls: {cert_file: a.pem}\n",
            "serve.yaml:2: reef.tls.cert_file: expected cert_file and key_file together",
        ),
        (
            "streams:\n  join_window_s: 100000\n",
            "serve.yaml:2: streams.join_window_s: expected dedup_window_s >= 2 x join_window_s",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_a_way_out(tmp_path: Path, text: str, said: str) -> None:
    found = mistakes(tmp_path, text)
    assert any(mistake.startswith(said) for mistake in found), found


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["--reef.prot", "1"],
            "command line: reef.prot: expected a known key, got 'prot': did you mean port?",
        ),
        (
            ["--kafka.prot", "1"],
            "command line: kafka.prot: expected a known key, got 'prot': did you mean port?",
        ),
        (
            ["--kafak.port=1"],
            "command line: kafak: expected a known section, got 'kafak': did you mean kafka?",
        ),
        (["--kafka.port"], "command line: kafka.port: expected a value after --kafka.port, got none"),
        (
            ["--kafka.port", "--reef.port", "1"],
            "command line: kafka.port: expected a value after --kafka.port",
        ),
        (["--bogus", "--kafka.port", "9"], "command line: expected --section.key value, got --bogus"),
        (
            ["--port", "1"],
            "command line: expected --section.key value, got --port: did you mean --reef.port?",
        ),
        (["surplus"], "command line: expected --section.key value, got surplus"),
        (["--kafka.port", "x"], 'command line: kafka.port: expected a whole number, got "x"'),
        (["--kafka.port.x", "1"], "command line: kafka.port: expected a value for port, got keys below it"),
        (
            ["--inference.model", "${NOPE}"],
            "command line: inference.model: expected the environment variable NOPE",
        ),
        (["--kafka.security", "SSL"], "command line: kafka.security: expected keys and values"),
        (["--reef.token", TOKEN], "command line: reef.token: expected a secret as ${VARIABLE}"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(tmp_path: Path, overrides: list[str], said: str) -> None:
    found = mistakes(tmp_path, overrides=overrides)
    assert [mistake[: len(said)] for mistake in found] == [said]


def test_an_option_is_not_the_value_of_the_one_before_it(tmp_path: Path) -> None:
    found = mistakes(tmp_path, overrides=["--kafka.port", "--bogus"])
    assert any("expected a value after --kafka.port, got none" in mistake for mistake in found)
    assert any("got --bogus" in mistake for mistake in found)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "REEF_KAFKA__PROT",
            "environment REEF_KAFKA__PROT: kafka.prot: expected a known key, got 'prot': did you",
        ),
        (
            "REEF_KAFAK__PORT",
            "environment REEF_KAFAK__PORT: kafak: expected a known section, got 'kafak': did you",
        ),
        ("REEF_KAFKA__PORT", 'environment REEF_KAFKA__PORT: kafka.port: expected a whole number, got "x"'),
        ("REEF_REEF__NO_SUCH", "environment REEF_REEF__NO_SUCH: reef.no_such: expected a known key"),
    ],
)
def test_a_mistake_in_the_environment_is_named(tmp_path: Path, name: str, said: str) -> None:
    found = mistakes(tmp_path, environ={name: "x"})
    assert [mistake[: len(said)] for mistake in found] == [said]


def test_other_variables_are_not_ours(tmp_path: Path) -> None:
    environ = {"REEF_CACHE": "x", "REEF_URL": "y", "REEF_TOKEN": "z", "PATH": "/bin", "REEFX_A__B": "1"}
    assert loaded(tmp_path, environ=environ).settings == load_settings(None, (), {}).settings


def test_a_recipe_that_cannot_be_loaded_hides_no_mistake_in_what_all_recipes_share(tmp_path: Path) -> None:
    text = "reef:\n  recipe: no.such:Recipe\n  batch_size: zwei\n  of_its_own: 1\nkafka:\n  port: many\n"
    found = [mistake.split(": expected")[0] for mistake in mistakes(tmp_path, text)]
    assert found == ["reef.recipe", "serve.yaml:3: reef.batch_size", "serve.yaml:6: kafka.port"]


def test_every_mistake_is_reported_at_once_in_reading_order(tmp_path: Path) -> None:
    text = "kafka:\n  port: many\n  prot: 1\nreef:\n  batch_size: 0\n  host: 0.0.0.0\nstreams: 5\n"
    found = mistakes(tmp_path, text, ["--lakefs.port", "no"], {"REEF_BLOBS__URL": "x"})
    assert [mistake.split(": ")[:2] for mistake in found] == [
        ["serve.yaml:2", "kafka.port"],
        ["serve.yaml:3", "kafka.prot"],
        ["serve.yaml:5", "reef.batch_size"],
        ["serve.yaml:6", "reef.host"],
        ["serve.yaml:7", "streams"],
        ["command line", "lakefs.port"],
        ["environment REEF_BLOBS__URL", "blobs.url"],
    ]


KEYS = ["port", "partitions", "retention_days"]


@given(st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(["prot", "no_such", "x"])))
def test_as_many_mistakes_are_reported_as_were_made(wrong_values: set[str], unknown: set[str]) -> None:
    overrides = [f"--kafka.{key}=none" for key in sorted(wrong_values | unknown)]
    try:
        load_settings(None, overrides, {})
        num_found = 0
    except ConfigurationError as error:
        num_found = len(error.problems)
    assert num_found == len(wrong_values) + len(unknown)


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "serve.yaml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match="readable YAML file"):
        load_settings(file, (), {})
    with pytest.raises(ConfigurationError, match="UTF-8, got No such file or directory: correct the path"):
        load_settings(tmp_path / "missing.yaml", (), {})


def test_an_empty_file_and_empty_sections_are_the_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").settings == loaded(tmp_path, "reef:\nkafka: {}\n# no more\n").settings


def test_a_file_of_too_many_values_is_refused(tmp_path: Path) -> None:
    layers = "a: &a [" + ",".join("x" * 100) + "]\n" + "b: &b [" + ",".join(["*a"] * 100) + "]\n"
    text = layers + "inference:\n  engine_args: [" + ",".join(["*b"] * 100) + "]\n"
    assert any("at most 100000 values" in mistake for mistake in mistakes(tmp_path, text))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().kafka.port = 1  # type: ignore[misc] # that it is frozen is what is tested
