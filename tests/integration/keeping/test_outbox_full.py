from pathlib import Path
from typing import Literal

import httpx
import pytest

from gateway.outbox import OutboxOptions
from schemas.bus import KafkaAccess
from schemas.ids import ScenarioName
from schemas.topics import NUM_PARTITIONS_DEFAULT
from tests.integration.keeping.rig import a_decided_scenario, running_keeping
from tests.scripted_upstream import ScriptedUpstream

NOBODY = KafkaAccess(bootstrap="127.0.0.1:1")
CHAT = {"messages": [{"role": "user", "content": "hello " * 700}]}
BYTES_MAX = 1024 * 1024
NUM_CALLS = 400
"""More than fit, by far."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", ["drop_oldest", "refuse"])
def test_a_full_outbox_drops_or_refuses_as_told_and_says_so(
    tmp_path: Path,
    scenario: ScenarioName,
    upstream: ScriptedUpstream,
    policy: Literal["drop_oldest", "refuse"],
) -> None:
    decided = a_decided_scenario(scenario)
    outbox = OutboxOptions(
        folder=tmp_path, num_partitions=NUM_PARTITIONS_DEFAULT, bytes_max=BYTES_MAX, when_full=policy
    )
    with (
        running_keeping(
            NOBODY, tmp_path, scenarios=[decided], engine_urls=[upstream.url], outbox=outbox
        ) as rig,
        httpx.Client(base_url=rig.url, trust_env=False, timeout=60) as client,
    ):
        before = client.get("/readyz")
        answers = [client.post("/v1/chat/completions", json=CHAT) for _ in range(NUM_CALLS)]
        ready, metrics = client.get("/readyz"), client.get("/metrics").text
    assert before.status_code == 200
    assert (ready.status_code, "outbox" in ready.text) == (503, True)
    assert "reef_gateway_outbox_full 1.0" in metrics
    statuses = {answer.status_code for answer in answers}
    num_dropped = next(
        float(line.split()[1])
        for line in metrics.splitlines()
        if line.startswith("reef_gateway_outbox_dropped_events_total")
    )
    if policy == "drop_oldest":
        assert statuses == {200}
        assert num_dropped > 0
    else:
        assert statuses == {200, 503}
        assert answers[-1].json()["error"]["code"] == "outbox_full"
        assert num_dropped == 0
