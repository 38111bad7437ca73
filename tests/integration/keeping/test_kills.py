from collections import Counter
from pathlib import Path

import pytest

from schemas.bus import KafkaAccess
from schemas.codec import encode
from schemas.ids import ScenarioName
from tests.integration.keeping.kills import receipts_over_kills
from tests.integration.keeping.rig import a_decided_scenario, running_keeping
from tests.integration.keeping.test_imports import events_in_log
from tests.scripted_upstream import ScriptedUpstream

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize(
    "num_kills",
    [
        pytest.param(3, marks=pytest.mark.timeout(600)),
        pytest.param(20, marks=[pytest.mark.faults, pytest.mark.timeout(3_000)]),
    ],
)
async def test_every_complete_answer_is_in_kafka_once_by_id_however_often_the_gateway_is_killed(
    topics: KafkaAccess, tmp_path: Path, scenario: ScenarioName, upstream: ScriptedUpstream, num_kills: int
) -> None:
    receipts = await receipts_over_kills(topics, tmp_path, scenario, upstream.url, num_kills)
    with running_keeping(topics, tmp_path, scenarios=[a_decided_scenario(scenario)]) as rig:
        calls, _ = await events_in_log(topics, rig, scenario)
    assert len(receipts) == len(set(receipts)) >= 20 * num_kills
    facts = Counter(str(receipt) for receipt, _ in {(call.receipt, encode(call)) for call in calls})
    assert {receipt: facts[receipt] for receipt in receipts} == dict.fromkeys(receipts, 1)
