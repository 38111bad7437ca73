"""Embedded programs refuse in one sentence what cannot work."""

import json
from pathlib import Path

import pytest

from deploy.command import require_program, run_command
from deploy.embedded.kafka import Kafka, KafkaOptions
from deploy.embedded.lakefs import LakefsCredentials
from deploy.embedded.model import prepare_model
from schemas.errors import UnavailableError
from schemas.settings.problems import ConfigurationError


def test_without_java_the_advice_is_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    kafka = Kafka(KafkaOptions(state_dir=tmp_path, cache_dir=tmp_path, port=1))
    for act in (kafka.prepare, kafka.start):
        with pytest.raises(UnavailableError, match=r"java.*apt-get install openjdk") as caught:
            act()
        assert caught.value.reason == "missing_java"


def test_keys_are_made_once_and_only_for_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    made = LakefsCredentials.read_or_make(path)
    assert LakefsCredentials.read_or_make(path) == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(json.loads(path.read_bytes())) == {"access_key_id", "secret_access_key"}
    assert made.secret_access_key.get_secret_value() not in repr(made)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"access_key_id": "x"}'])
def test_a_spoilt_file_of_keys_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(content)
    with pytest.raises(UnavailableError, match=r"credentials\.json"):
        LakefsCredentials.read_or_make(path)


@pytest.mark.parametrize("given", ["smollm2", "/nowhere/model", "./model", "a/b/c"])
def test_an_unknown_model_names_those_that_are_prepared(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"inference\.model.*smollm2-135m, tiny"):
        prepare_model(given, tmp_path)


def test_a_folder_with_a_model_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    model = prepare_model(str(tmp_path / "mine"), tmp_path / "cache")
    assert (model.name, model.source, model.is_local) == ("mine", str(tmp_path / "mine"), True)


def test_a_hub_id_is_left_to_the_engine(tmp_path: Path) -> None:
    model = prepare_model("organisation/model", tmp_path)
    assert (model.name, model.source, model.is_local) == ("organisation/model", "organisation/model", False)


def test_a_command_that_fails_shows_its_last_words() -> None:
    with pytest.raises(
        UnavailableError, match=r"expected asking to succeed, got exit status 3: .*no such host"
    ):
        run_command(("sh", "-c", "echo no such host >&2; exit 3"), what="asking", deadline_s=10)


def test_a_command_that_hangs_ends_with_its_deadline() -> None:
    with pytest.raises(UnavailableError, match=r"within 0\.2 s"):
        run_command(("sleep", "60"), what="asking", deadline_s=0.2)


def test_a_command_gives_its_output_and_knows_our_variables() -> None:
    said = run_command(
        ("sh", "-c", "echo $REEF_SAMPLE"), what="asking", deadline_s=10, environ={"REEF_SAMPLE": "hi"}
    )
    assert said == "hi\n"


def test_a_program_that_is_not_there_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="mvn on PATH, found none: install Maven"):
        require_program("mvn", advice="install Maven")
