"""Which services one machine runs, in which order, and what it cannot run."""

from pathlib import Path

import pytest

from deploy.services import Deployment, compose_services, gateway_url
from schemas.errors import RejectedError
from schemas.settings import Settings
from schemas.settings.settings import load_for_command


def settings_of(tmp_path: Path, *words: str) -> Settings:
    return load_for_command(None, ["--reef.state_dir", str(tmp_path), *words]).settings


def names_of(settings: Settings) -> list[list[str]]:
    stages = compose_services(Deployment(settings=settings, words=()))
    return [[service.daemon.launch.name for service in stage] for stage in stages]


def test_the_gateway_comes_last_since_it_is_ready_only_with_a_release(tmp_path: Path) -> None:
    assert names_of(settings_of(tmp_path)) == [["release"], ["streams"], ["trainer"], ["gateway"]]


def test_a_scenario_that_trains_nothing_needs_no_trainer(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "--training.target", "none")
    assert names_of(settings) == [["release"], ["streams"], ["gateway"]]


def test_two_trained_scenarios_on_one_machine_are_refused(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "--training.target", "lora", "--reef.scenarios", "[first, second]")
    with pytest.raises(RejectedError, match="first, second"):
        names_of(settings)


def test_a_gateway_that_listens_everywhere_is_asked_on_loopback(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    everywhere = settings.model_copy(update={"reef": settings.reef.model_copy(update={"host": "0.0.0.0"})})
    assert gateway_url(everywhere) == f"http://127.0.0.1:{settings.reef.port}"
