from pathlib import Path

import httpx
import pytest

from schemas.bus import KafkaAccess
from schemas.ids import ScenarioName
from tests.integration.keeping.rig import a_decided_scenario, running_keeping

pytestmark = pytest.mark.kafka
CHAT = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize("is_creating", [True, False])
async def test_a_call_creates_the_scenario_that_it_names_only_where_that_is_allowed(
    topics: KafkaAccess, tmp_path: Path, scenario: ScenarioName, *, is_creating: bool
) -> None:
    decided = a_decided_scenario(scenario)
    with running_keeping(topics, tmp_path, scenarios=[decided], is_creating=is_creating) as rig:
        async with httpx.AsyncClient(base_url=rig.url, trust_env=False, timeout=30) as client:
            headers = {"x-reef-scenario": f"{scenario}-new"}
            answer = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
            listed = (await client.get("/reef/scenarios")).json()["scenarios"]
    names = {each["name"] for each in listed}
    code = answer.json()["error"]["code"]
    assert (code, f"{scenario}-new" in names) == (
        ("no_release", True) if is_creating else ("no_such_scenario", False)
    )


async def test_a_bad_name_creates_nothing(
    topics: KafkaAccess, tmp_path: Path, scenario: ScenarioName
) -> None:
    decided = a_decided_scenario(scenario)
    with running_keeping(topics, tmp_path, scenarios=[decided], is_creating=True) as rig:
        async with httpx.AsyncClient(base_url=rig.url, trust_env=False, timeout=30) as client:
            headers = {"x-reef-scenario": "no name, this"}
            answer = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
            listed = (await client.get("/reef/scenarios")).json()["scenarios"]
    assert answer.status_code == 400
    assert [each["name"] for each in listed] == [scenario]
