import json
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from deploy.commands.topics import topics
from deploy.configuration import OVERRIDES_ALLOWED
from schemas.errors import RejectedError
from schemas.topics import INTERACTIONS, TOPICS

APP = typer.Typer()
APP.command(context_settings=OVERRIDES_ALLOWED)(topics)


def reef_topics(*words: str) -> Result:
    return CliRunner().invoke(APP, list(words))


def listed(*words: str) -> dict[str, dict[str, Any]]:
    result = reef_topics(*words, "--json")
    assert result.exit_code == 0, result.output
    return {row["topic"]: row for row in json.loads(result.stdout)}


@pytest.mark.kafka
def test_topics_are_listed_with_what_they_hold(kafka_bootstrap: str) -> None:
    rows = listed("--bootstrap", kafka_bootstrap, "--create")
    assert list(rows) == list(TOPICS)
    interactions = rows[INTERACTIONS]
    assert interactions["partitions"] == 8
    assert interactions["retention_ms"] == 14 * 86_400_000
    assert interactions["events"][0] == "InferenceCompleted"
    assert interactions["offsets"] >= 0
    assert {row["problem"] for row in rows.values()} == {None}
    shown = reef_topics("--bootstrap", kafka_bootstrap)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["topic", *TOPICS], "one line a topic, however long"
    assert "for ever" in shown.stdout


@pytest.mark.kafka
def test_a_topic_with_other_partitions_is_shown_with_what_to_do(kafka_bootstrap: str) -> None:
    assert reef_topics("--bootstrap", kafka_bootstrap, "--create").exit_code == 0
    rows = listed("--bootstrap", kafka_bootstrap, "--kafka.partitions", "5")
    assert "expected partitions 5, found partitions 8: set kafka.partitions" in rows[INTERACTIONS]["problem"]
    refused = reef_topics("--bootstrap", kafka_bootstrap, "--create", "--kafka.partitions", "5")
    assert isinstance(refused.exception, RejectedError)
    assert "set kafka.partitions" in str(refused.exception)


def test_a_missing_broker_is_one_line_and_exit_1() -> None:
    words = (sys.executable, "-m", "deploy.cli", "topics", "--bootstrap", "127.0.0.1:1")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("reef: expected Kafka to answer, got")
    assert done.stderr.endswith("from [127.0.0.1:1]: check that the brokers run and are reachable\n")
    assert done.stderr.count("\n") == 1
