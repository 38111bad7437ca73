import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from deploy.commands.topics import app
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Outgoing, Placed, Publisher
from schemas.codec import encode
from schemas.errors import RejectedError
from schemas.events import Event
from schemas.packed import JsonBytes
from schemas.topic_admin import ensure_topics
from schemas.topics import Cleanup, TopicSpec
from tests.builders import a_feedback_reported, an_inference_completed

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(kafka_bootstrap: str) -> str:
    """A topic of two partitions of this test alone."""
    spec = TopicSpec(
        name=f"test.{uuid4().hex}", events=(), key="any", cleanup=Cleanup.DELETE, retention_ms=-1
    )
    access = KafkaAccess(bootstrap=kafka_bootstrap)
    asyncio.run(ensure_topics(access))
    asyncio.run(ensure_topics(access, specs=[spec], num_partitions=2))
    return spec.name


def written(bootstrap: str, folder: Path, topic: str, values: Sequence[Event | bytes]) -> list[Placed]:
    async def write() -> list[Placed]:
        blobs = open_blob_store((folder / "blobs").as_uri())
        async with Publisher(KafkaAccess(bootstrap=bootstrap), blobs=blobs) as publisher:
            return [
                await publisher.publish_record(
                    Outgoing(
                        topic=topic,
                        key=b"key",
                        value=one if isinstance(one, bytes) else encode(one),
                        partition=number % 2,
                    )
                )
                for number, one in enumerate(values)
            ]

    return asyncio.run(write())


def tailed(bootstrap: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["tail", *words, "--bootstrap", bootstrap])


def objects(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_newest_events_of_all_partitions_are_shown_and_texts_are_hidden(
    kafka_bootstrap: str, tmp_path: Path, topic: str
) -> None:
    secret = "the text nobody may find"
    calls = [an_inference_completed(request_id=f"call {n}") for n in range(6)]
    report = a_feedback_reported(feedback=JsonBytes(f'"{secret}"'.encode()))
    written(kafka_bootstrap, tmp_path, topic, [*calls, report, b"no event"])
    newest = objects(tailed(kafka_bootstrap, topic, "-n", "4", "--json"))
    assert [one.get("type") or one["reason"] for one in newest] == [
        "InferenceCompleted",
        "InferenceCompleted",
        "FeedbackReported",
        "truncated",
    ]
    assert [one["event"]["request_id"] for one in newest[:2]] == ["call 4", "call 5"]
    hidden = tailed(kafka_bootstrap, topic, "-n", "10")
    assert len(hidden.stdout.splitlines()) == 8
    assert secret not in hidden.stdout
    blobs = ("--blobs.url", (tmp_path / "blobs").as_uri())
    assert secret in tailed(kafka_bootstrap, topic, "--with-text", *blobs).stdout


def test_an_offset_of_a_partition_is_where_it_begins_and_one_that_is_not_there_is_refused(
    kafka_bootstrap: str, tmp_path: Path, topic: str
) -> None:
    written(kafka_bootstrap, tmp_path, topic, [a_feedback_reported(part=n) for n in range(8)])
    words = (topic, "-p", "1", "--from", "1", "--json")
    shown = objects(tailed(kafka_bootstrap, *words, "-n", "2"))
    assert [(one["partition"], one["offset"], one["event"]["part"]) for one in shown] == [
        (1, 1, 3),
        (1, 2, 5),
    ]
    beyond = tailed(kafka_bootstrap, topic, "-p", "1", "--from", "9")
    assert isinstance(beyond.exception, RejectedError)
    assert f"an offset of {topic}/1 from 0 to 4, got 9" in str(beyond.exception)
    assert "from 0 to 1, got 2" in str(tailed(kafka_bootstrap, topic, "-p", "2").exception)
    assert tailed(kafka_bootstrap, topic, "--from", "1").exit_code == 2
    assert "see `reef topics`" in str(tailed(kafka_bootstrap, "no-such").exception)


def test_following_shows_what_comes_until_it_is_interrupted(
    kafka_bootstrap: str, tmp_path: Path, topic: str
) -> None:
    words = ("topics", "tail", topic, "-n", "1", "-f", "--json", "--bootstrap", kafka_bootstrap)
    written(kafka_bootstrap, tmp_path, topic, [a_feedback_reported(part=7)])
    with subprocess.Popen((sys.executable, "-m", "deploy.cli", *words), stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["event"]["part"] == 7
        written(kafka_bootstrap, tmp_path, topic, [a_feedback_reported(part=8)])
        assert json.loads(following.stdout.readline())["event"]["part"] == 8
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 0
