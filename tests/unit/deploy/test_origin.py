"""What runs is known by its configuration: the same one is joined, another one is refused."""

import json
import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from deploy.background import join_supervisor, require_no_other
from deploy.commands.serve import serving_of
from deploy.origin import Origin, origin_of
from deploy.process_record import record_process
from deploy.stack_state import StackState, read_stack_state, write_stack_state
from deploy.supervisor import Supervisor, supervisor_record
from schemas.errors import ConflictError
from schemas.settings import ReefSettings, Settings

CONCISE = Path("/recipes/concise/serve.yaml")


def _origin(path: Path | None = CONCISE, **reef: object) -> Origin:
    return origin_of(Settings(reef=ReefSettings.model_validate(reef)), path)


def _pretend_to_run(state_dir: Path, origin: Origin | None) -> None:
    """Leave the files that a supervisor keeps while it runs; this process stands for it."""
    (state_dir / "run").mkdir()
    record_process(os.getpid(), supervisor_record(state_dir))
    state = StackState(phase="ready", programs={"kafka": "ready"}, supervisor_pid=os.getpid(), origin=origin)
    write_stack_state(state_dir, state)


def test_the_same_configuration_is_joined(tmp_path: Path) -> None:
    _pretend_to_run(tmp_path, _origin(port=9_000))
    assert join_supervisor(tmp_path, ["kafka"], origin=_origin(port=9_000))
    require_no_other(tmp_path, _origin(port=9_000))


def test_a_copy_of_the_file_elsewhere_is_the_same_configuration(tmp_path: Path) -> None:
    _pretend_to_run(tmp_path, _origin())
    assert join_supervisor(tmp_path, ["kafka"], origin=_origin(Path("/copy.yaml")))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (_origin(Path("/other.yaml"), port=9_000), r"a deployment of /recipes/concise/serve\.yaml: "),
        (_origin(port=9_000), r"a deployment of /recipes/concise/serve\.yaml with other settings: "),
    ],
)
def test_another_configuration_is_refused_with_the_name_of_what_runs(
    tmp_path: Path, wanted: Origin, words: str
) -> None:
    _pretend_to_run(tmp_path, _origin())
    with pytest.raises(ConflictError, match=f"{words}run `reef stack down` first"):
        join_supervisor(tmp_path, ["kafka"], origin=wanted)
    with pytest.raises(ConflictError, match=words):
        require_no_other(tmp_path, wanted)


def test_defaults_that_run_are_named(tmp_path: Path) -> None:
    _pretend_to_run(tmp_path, _origin(None))
    with pytest.raises(ConflictError, match="a deployment of the defaults: "):
        require_no_other(tmp_path, _origin(port=9_000))


def test_a_supervisor_that_does_not_say_counts_as_the_same(tmp_path: Path) -> None:
    _pretend_to_run(tmp_path, None)
    path = tmp_path / "run" / "stack.state"
    said = json.loads(path.read_bytes())
    del said["origin"]  # as versions before wrote it
    path.write_text(json.dumps(said))
    assert join_supervisor(tmp_path, ["kafka"], origin=_origin())
    require_no_other(tmp_path, _origin())


def test_where_nothing_runs_nothing_is_refused(tmp_path: Path) -> None:
    _pretend_to_run(tmp_path, _origin())
    supervisor_record(tmp_path).unlink()
    assert not join_supervisor(tmp_path, ["kafka"], origin=_origin(port=9_000))
    require_no_other(tmp_path, _origin(port=9_000))


def test_a_supervisor_says_what_it_was_made_from(tmp_path: Path) -> None:
    supervisor = Supervisor([], state_dir=tmp_path, origin=_origin())
    supervisor.request_stop()
    supervisor.run()
    state = read_stack_state(tmp_path)
    assert state is not None
    assert state.origin == _origin()


def test_serving_names_its_settings_and_its_file_wherever_it_is_called(tmp_path: Path) -> None:
    settings = Settings(reef=ReefSettings(state_dir=tmp_path))
    serving = serving_of(settings, Path("serve.yaml"), [])
    assert serving.origin == origin_of(settings, Path.cwd() / "serve.yaml")
    assert serving_of(settings, None, []).origin.config_path is None


def test_a_secret_and_the_state_folder_are_not_part_of_it() -> None:
    plain, other = _origin(), _origin(state_dir="/elsewhere")
    assert plain == other
    first, second = (_origin(token=SecretStr(word * 20)) for word in "ab")
    assert first == second != plain
