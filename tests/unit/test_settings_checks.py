"""What is unsafe or could not work is refused before anything starts; secrets come from outside only."""

import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from schemas.errors import RejectedError
from schemas.events import TrainingTarget
from schemas.recipe import recipe_digest
from schemas.settings import Settings
from schemas.settings.checks import is_loopback
from schemas.settings.load import load_settings
from schemas.settings.problems import ConfigurationError
from schemas.settings.receipt_keys import obtain_receipt_keys
from schemas.settings.scenarios import recipe_of, scenario_configured, scenarios_of
from schemas.settings.secrets import kafka_login, receipt_keys, tokens_of

TOKEN = "a-token-of-some-length"
KEY = "0123456789abcdef"
KEYS = {"REEF_RECEIPT_KEYS": f"{KEY}-new, {KEY}-old"}
REMOTE = ["--kafka.bootstrap", "broker:9092"]
S3 = ["--blobs.url", "s3://bucket/blobs"]


def refused(overrides: Sequence[str], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as found:
        load_settings(None, overrides, environ or {})
    assert len(found.value.problems) == 1, found.value
    return str(found.value.problems[0])


def accepted(overrides: Sequence[str], environ: dict[str, str] | None = None) -> Settings:
    return load_settings(None, overrides, environ or {}).settings


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", "127.0.0.1.example.org"])
def test_an_open_door_to_the_world_is_refused(host: str) -> None:
    assert "expected tokens when listening" in refused(["--reef.host", host])
    accepted(["--reef.host", host, "--reef.token", "${T}"], {"T": TOKEN})
    accepted(["--reef.host", host, "--reef.tokens", "[{token_env: T}]"], {"T": TOKEN})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_only_this_machine_reaches_loopback(host: str) -> None:
    assert is_loopback(host)
    assert accepted(["--reef.host", host]).reef.host == host


@pytest.mark.parametrize("environ", [{}, {"T": ""}])
def test_a_token_missing_from_the_environment_is_refused(environ: dict[str, str]) -> None:
    said = refused(["--reef.tokens", "[{token_env: T}]"], environ)
    assert "reef.tokens[0].token_env: expected a secret in the environment variable T, got none" in said


@pytest.mark.parametrize("environ", [{"T": ""}, {"REEF_REEF__TOKEN": ""}])
def test_an_empty_token_is_refused_and_never_an_open_door(environ: dict[str, str]) -> None:
    overrides = ["--reef.token", "${T}"] if "T" in environ else []
    assert "reef.token: expected it to have at least 1" in refused(overrides, environ)


@pytest.mark.parametrize("written", ["secret", "x${T}", "${T:-secret}", "${T}${T}"])
def test_a_secret_in_a_file_is_refused(tmp_path: Path, written: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(f"reef:\n  token: {written}\n")
    with pytest.raises(ConfigurationError, match=r"serve.yaml:2: reef.token: expected a secret as") as found:
        load_settings(file, (), {"T": TOKEN})
    assert "secret-" not in str(found.value)
    assert TOKEN not in str(found.value)


def test_a_remote_log_needs_blobs_that_all_can_read() -> None:
    assert "expected blobs.url as s3://" in refused(REMOTE, KEYS)
    assert "expected blobs.url as s3://" in refused([*REMOTE, "--blobs.url", "file:///blobs"], KEYS)
    assert accepted([*REMOTE, *S3], KEYS).blobs_url == "s3://bucket/blobs"


def test_a_remote_log_needs_receipt_keys() -> None:
    assert "expected receipt keys in the environment variable REEF_RECEIPT_KEYS" in refused([*REMOTE, *S3])
    named = [*REMOTE, *S3, "--reef.receipt_keys_env", "MINE"]
    assert "MINE" in refused(named, KEYS)
    accepted(named, {"MINE": KEY})


def test_a_short_receipt_key_is_refused_without_showing_it() -> None:
    said = refused([], {"REEF_RECEIPT_KEYS": f"{KEY},tooshort"})
    assert "16 bytes or more" in said
    assert "tooshort" not in said


@pytest.mark.parametrize(
    ("days", "window", "seconds", "is_kept"),
    [
        (13, "buffer_max_age_s", 7 * 86_400, False),
        (14, "buffer_max_age_s", 7 * 86_400, True),
        (14, "buffer_max_age_s", 7 * 86_400 + 1, False),
        (14, "orphan_window_s", 8 * 86_400, False),
        (14, "dedup_window_s", 8 * 86_400, False),
        (16, "orphan_window_s", 8 * 86_400, True),
    ],
)
def test_the_log_is_kept_twice_the_longest_window(
    days: int, window: str, seconds: int, is_kept: bool
) -> None:
    overrides = [f"--kafka.retention_days={days}", f"--streams.{window}={seconds}"]
    if is_kept:
        assert accepted(overrides).kafka.retention_days == days
    else:
        assert "kafka.retention_days: expected at least" in refused(overrides)


@pytest.mark.parametrize(
    ("scenarios", "target", "is_possible"),
    [
        ("[one, two]", "full", False),
        ("[{name: one, target: full}, {name: two, target: full}]", "none", False),
        ("[one, {name: two, target: lora}, {name: three, target: none}]", "full", True),
        ("[one, two]", "lora", True),
        ("[{name: one, target: full}, two]", "lora", True),
    ],
)
def test_one_scenario_at_most_owns_the_weights(scenarios: str, target: str, is_possible: bool) -> None:
    overrides = ["--reef.scenarios", scenarios, "--training.target", target]
    if is_possible:
        assert accepted(overrides).training.target == target
    else:
        assert "expected one scenario with target full on one engine, got one, two" in refused(overrides)


def test_sasl_needs_name_and_password_that_exist() -> None:
    sasl = [*REMOTE, *S3, "--kafka.security.protocol", "SASL_SSL"]
    assert "expected username_env and password_env" in refused(sasl, KEYS)
    named = [*sasl, "--kafka.security.username_env=U", "--kafka.security.password_env=P"]
    assert "kafka.security.password_env: expected a secret" in refused(named, {"U": "u", **KEYS})
    environ = {"U": "u", "P": "p", **KEYS}
    login = kafka_login(accepted(named, environ), environ)
    assert login is not None
    assert (login.username.get_secret_value(), login.password.get_secret_value()) == ("u", "p")
    assert kafka_login(Settings(), {}) is None


def test_tokens_come_with_their_scopes() -> None:
    listed = "[{token_env: READER, scopes: [read], scenarios: [Coder-1]}]"
    environ = {"READER": "r", "T": TOKEN}
    settings = accepted(["--reef.tokens", listed, "--reef.token", "${T}"], environ)
    reader, root = tokens_of(settings, environ)
    assert (reader.secret.get_secret_value(), reader.scopes, reader.scenarios) == (
        "r",
        ("read",),
        ("coder-1",),
    )
    assert root.secret.get_secret_value() == TOKEN
    assert root.scopes == ("infer", "report", "read", "admin")
    assert root.scenarios == ("*",)
    assert TOKEN not in repr(settings) + repr(root)
    assert tokens_of(Settings(), {}) == ()


def test_receipt_keys_are_read_newest_first() -> None:
    keys = receipt_keys(Settings(), KEYS)
    assert [key.get_secret_value() for key in keys] == [f"{KEY}-new", f"{KEY}-old"]


def embedded_in(folder: Path) -> Settings:
    return accepted(["--reef.state_dir", str(folder / "state")])


def test_a_missing_receipt_key_is_made_once_beside_an_embedded_log(tmp_path: Path) -> None:
    settings = embedded_in(tmp_path)
    (first,) = obtain_receipt_keys(settings, {})
    (second,) = obtain_receipt_keys(settings, {})
    file = tmp_path / "state/receipt.key"
    assert first.get_secret_value() == second.get_secret_value() == file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(first.get_secret_value()) == 64
    assert [entry.name for entry in file.parent.iterdir()] == ["receipt.key"]
    assert obtain_receipt_keys(settings, KEYS) == receipt_keys(settings, KEYS)


def test_gateways_that_start_at_once_end_with_one_key(tmp_path: Path) -> None:
    settings = embedded_in(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: obtain_receipt_keys(settings, {})[0].get_secret_value(), range(16)))
    assert len(set(found)) == 1


def test_nothing_is_concluded_from_a_key_that_was_refused() -> None:
    assert "reef.tokens[0].scopes[0]" in refused(
        ["--reef.host", "0.0.0.0", "--reef.tokens", "[{token_env: T, scopes: [reed]}]"], {"T": TOKEN}
    )
    assert "kafka.retention_days: expected a value" in refused(
        ["--kafka.retention_days=0", "--streams.buffer_max_age_s=6000000"]
    )


def test_true_is_no_number_in_a_scenario_either() -> None:
    said = refused(["--reef.scenarios", "[{name: one, batch_size: true}]"])
    assert "reef.scenarios[0].batch_size: expected no true or false here" in said


def test_a_damaged_or_unreachable_receipt_key_is_refused(tmp_path: Path) -> None:
    settings = embedded_in(tmp_path)
    obtain_receipt_keys(settings, {})
    (tmp_path / "state/receipt.key").write_text("short")
    with pytest.raises(RejectedError, match="restore it"):
        obtain_receipt_keys(settings, {})
    (tmp_path / "taken").write_text("")
    with pytest.raises(RejectedError, match="make the folder writable"):
        obtain_receipt_keys(accepted(["--reef.state_dir", str(tmp_path / "taken")]), {})
    remote = accepted([*REMOTE, *S3], KEYS)
    with pytest.raises(RejectedError, match="expected receipt keys"):
        obtain_receipt_keys(remote, {})


def test_a_scenario_lays_its_own_options_over_reefs() -> None:
    listed = (
        "[{name: one, batch_size: 4, target: lora}, {name: two, recipe: 'tests.example_recipe:ThumbsRecipe'}]"
    )
    settings = accepted(["--reef.scenarios", listed, "--reef.batch_size=9", "--reef.max_staleness=2"])
    one, two = scenarios_of(settings)
    assert (one.options.batch_size, one.options.max_staleness, one.target) == (4, 2, TrainingTarget.LORA)
    assert (two.options.batch_size, two.options.max_staleness, two.target) == (16, 0, TrainingTarget.FULL)
    assert type(recipe_of(two)).__name__ == "ThumbsRecipe"


def test_a_scenario_is_stated_for_the_folds_with_digest_and_windows() -> None:
    settings = accepted(["--reef.batch_size=9", "--streams.orphans_max=5"])
    (scenario,) = scenarios_of(settings)
    event = scenario_configured(scenario, settings.streams, configured_at_us=7)
    body = orjson.loads(event.options)
    assert body["recipe"]["batch_size"] == 9
    assert body["streams"]["orphans_max"] == 5
    assert "workers" not in body["streams"]
    assert event.recipe_digest == recipe_digest(scenario.recipe, scenario.options.model_dump(mode="json"))
    assert (event.scenario, event.target, event.is_retired) == ("default", TrainingTarget.FULL, False)
    changed = accepted(["--reef.batch_size=8"])
    other = scenario_configured(scenarios_of(changed)[0], changed.streams, configured_at_us=7)
    assert other.recipe_digest != event.recipe_digest
