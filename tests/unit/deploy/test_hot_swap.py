"""An engine starts from the folder that its gateway wants and ends by pid; who cannot swap is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.embedded.engine_keeper import EngineKeeper
from deploy.embedded.served_folder import read_served_folder
from deploy.hot_swap import refuse_unswappable
from deploy.process_record import record
from gateway.engines import Engines
from schemas.errors import RejectedError
from schemas.settings.load import load_settings
from tests.scripted_upstream import running_upstream
from tests.scripted_weights import ScriptedWeights

MODEL = "/models/base"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "release"
    found.mkdir()
    (found / "config.json").write_text("{}")
    return found


async def test_an_engine_starts_from_the_folder_that_was_asked_for_last(tmp_path: Path, folder: Path) -> None:
    keeper = EngineKeeper(tmp_path, model=MODEL)
    assert read_served_folder(tmp_path, model=MODEL) == MODEL
    await keeper.keep("/models/older")
    await keeper.keep(str(folder))
    assert read_served_folder(tmp_path, model=MODEL) == str(folder)


async def test_what_was_asked_for_another_model_or_is_gone_does_not_count(
    tmp_path: Path, folder: Path
) -> None:
    await EngineKeeper(tmp_path, model=MODEL).keep(str(folder))
    assert read_served_folder(tmp_path, model="/models/other") == "/models/other"
    (folder / "config.json").unlink()
    assert read_served_folder(tmp_path, model=MODEL) == MODEL


async def test_an_engine_is_ended_by_its_recorded_pid_and_nobody_else(tmp_path: Path) -> None:
    sleep = (sys.executable, "-c", "import time; time.sleep(600)")
    engine = subprocess.Popen(sleep, start_new_session=True)
    other = subprocess.Popen(sleep, start_new_session=True)
    try:
        (tmp_path / "run").mkdir()
        record(engine.pid, tmp_path / "run" / "engine.json")
        await EngineKeeper(tmp_path, model=MODEL).restart()
        assert engine.wait(20) != 0
        assert other.poll() is None
    finally:
        for process in (engine, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize("target", ["full", "lora"])
async def test_training_what_an_engine_could_never_be_given_is_refused(target: str) -> None:
    settings = load_settings(None, ["--training.target", target], {}).settings
    with running_upstream() as upstream:
        async with Engines([upstream.url], wait_s=0.0) as engines:
            with pytest.raises(RejectedError, match=upstream.url):
                await refuse_unswappable(settings, engines)


async def test_an_engine_that_can_swap_or_is_not_up_or_only_records_is_no_reason_to_refuse() -> None:
    trained = load_settings(None, [], {}).settings
    recorded = load_settings(None, ["--training.target", "none"], {}).settings
    with running_upstream(weights=ScriptedWeights()) as able, running_upstream() as unable:
        async with Engines([able.url, "http://127.0.0.1:9"], wait_s=0.0) as engines:
            await refuse_unswappable(trained, engines)
        async with Engines([unable.url], wait_s=0.0) as engines:
            await refuse_unswappable(recorded, engines)
