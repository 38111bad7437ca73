import pytest

from deploy.one_gateway import created_scenario
from schemas.ids import ScenarioName
from schemas.settings.load import load_settings


@pytest.mark.parametrize(("target", "created"), [("full", "none"), ("lora", "lora"), ("none", "none")])
def test_a_scenario_created_by_name_leaves_the_weights_to_the_one_that_trains_them(
    target: str, created: str
) -> None:
    settings = load_settings(None, ("--training.target", target), {}).settings
    assert created_scenario(settings, ScenarioName("new")).target == created
