"""Scenarios that no file names: created by a call, or remembered from another configuration's runs."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from deploy.one_gateway import created_scenario
from gateway.auth import ALL_SCENARIOS, Grant
from gateway.catalog import Catalog
from gateway.scenarios import Recorder, ScenarioOptions, Scenarios
from gateway.views import Views
from schemas.events import TrainingTarget
from schemas.ids import ScenarioName
from schemas.settings import Settings
from schemas.settings.load import load_settings
from schemas.settings.scenarios import scenarios_of
from tests.gateway_rig import MemoryRecorder

EVERYTHING = Grant(scopes=frozenset(), scenarios=frozenset({ALL_SCENARIOS}))


@pytest.mark.parametrize(("target", "created"), [("full", "none"), ("lora", "lora"), ("none", "none")])
def test_a_scenario_created_by_name_leaves_the_weights_to_the_one_that_trains_them(
    target: str, created: str
) -> None:
    settings = load_settings(None, ("--training.target", target), {}).settings
    assert created_scenario(settings, ScenarioName("new")).target == created


class Remembered:
    """Views of a log in which another configuration trained a scenario of its own."""

    async def configured(self) -> Mapping[str, Mapping[str, Any]]:
        """Give the one scenario."""
        facts = {
            "recipe": "recipes.sao.recipe:SAORecipe",
            "options": '{"recipe": {}}',
            "target": "full",
            "is_retired": False,
        }
        return {"concise": facts}


def recalled(settings: Settings) -> tuple[Scenarios, Catalog]:
    catalog = Catalog(one.name for one in settings.reef.scenarios)
    options = ScenarioOptions(
        configured=scenarios_of(settings),
        make=lambda name: created_scenario(settings, name),
        streams=settings.streams,
        receipt_keys=(),
        score_abs_max=1e6,
    )
    scenarios = Scenarios(options, catalog=catalog, recorder=cast(Recorder, MemoryRecorder()))
    asyncio.run(scenarios.recall(cast(Views, Remembered())))
    return scenarios, catalog


def test_a_remembered_scenario_leaves_the_weights_to_the_one_that_the_file_trains() -> None:
    scenarios, catalog = recalled(load_settings(None, (), {}).settings)
    assert catalog.names() == ("concise", "default")
    assert scenarios.get(ScenarioName("concise")).scenario.target is TrainingTarget.NONE
    assert scenarios.get(ScenarioName("default")).scenario.target is TrainingTarget.FULL


def test_a_remembered_scenario_changes_nothing_for_clients_of_the_only_configured_one() -> None:
    _, catalog = recalled(load_settings(None, (), {}).settings)
    assert catalog.resolve(None, EVERYTHING).name == "default"
