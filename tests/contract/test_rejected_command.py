import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from deploy.commands.rejected import app
from deploy.refusals import ATTEMPTS_HEADER
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Publisher, Reader, Record
from schemas.codec import encode
from schemas.errors import RejectedError
from schemas.events import EventRejected, Header
from schemas.ids import ReportId, ScenarioName
from schemas.packed import JsonBytes, OriginalBytes
from schemas.topic_admin import ensure_topics
from schemas.topics import INTERACTIONS, TRAINING
from tests.builders import a_feedback_reported, an_event_rejected

pytestmark = pytest.mark.kafka

SECRET = "the text nobody may find"


class Rejected:
    """Types `reef rejected …` about refusals of one reason, which only this test writes."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.reason = f"reason-{uuid4().hex}"
        self._access = KafkaAccess(bootstrap=bootstrap)
        self._blobs_url = (folder / "blobs").as_uri()
        asyncio.run(ensure_topics(self._access))

    def __call__(self, *words: str) -> Result:
        where = ("--bootstrap", self._access.bootstrap, "--blobs.url", self._blobs_url)
        return CliRunner().invoke(app, [*words, *where])

    def lines(self, *words: str, exit_code: int = 0) -> list[Any]:
        result = self(*words, "--json")
        assert result.exit_code == exit_code, (result.output, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]

    def write(self, events: Sequence[EventRejected]) -> list[str]:
        """Write refusals; give their names."""

        async def write() -> list[str]:
            async with Publisher(self._access, blobs=open_blob_store(self._blobs_url)) as publisher:
                placed = [await publisher.publish(event) for event in events]
                return [f"{one.partition}@{one.offset}" for one in placed]

        return asyncio.run(write())

    def read(self, place: dict[str, Any]) -> Record:
        async def read() -> Record:
            async with Reader(self._access) as reader:
                at = place["offset"]
                async for record in reader.read_range(place["topic"], place["partition"], at, at):
                    return record
            raise AssertionError(place)

        return asyncio.run(read())

    def refused(self, number: int = 1, attempts: int = 0, **changes: Any) -> EventRejected:
        report = a_feedback_reported(
            scenario=ScenarioName(self.reason),
            report_id=ReportId(f"report-{number}"),
            feedback=JsonBytes(f'"{SECRET}{"." * 300_000 if number == 2 else ""}"'.encode()),
        )
        headers = [Header(name="trace", value=b"t")]
        headers += [Header(name=ATTEMPTS_HEADER, value=str(attempts).encode())] if attempts else []
        named: dict[str, Any] = {
            "reason": self.reason,
            "source_topic": INTERACTIONS,
            "key": OriginalBytes(report.route.encode()),
            "value": OriginalBytes(encode(report)),
            "headers": tuple(headers),
        }
        return an_event_rejected(**(named | changes))


@pytest.fixture
def rejected(kafka_bootstrap: str, tmp_path: Path) -> Rejected:
    """The commands beside the shared broker."""
    return Rejected(kafka_bootstrap, tmp_path)


def test_refusals_are_counted_listed_and_shown(rejected: Rejected) -> None:
    names = rejected.write(
        [rejected.refused(1), rejected.refused(2), rejected.refused(1, source_topic=TRAINING)]
    )
    (listed,) = rejected.lines("--reason", rejected.reason, "--since", "1d")
    assert [(one["topic"], one["num"]) for one in listed["counts"]] == [(INTERACTIONS, 2), (TRAINING, 1)]
    assert {one["name"] for one in listed["refusals"]} == set(names)
    (narrowed,) = rejected.lines("list", "--reason", rejected.reason, "--topic", "training", "-n", "0")
    assert ([one["num"] for one in narrowed["counts"]], narrowed["refusals"]) == ([1], [])
    people = rejected("list", "--reason", rejected.reason)
    assert len(people.stdout.splitlines()) == 3 + 1 + 4
    for name in names[:2]:
        (closed,) = rejected.lines("show", name)
        assert (closed["type"], closed["event"]["scenario"]) == ("FeedbackReported", rejected.reason)
        assert SECRET not in rejected("show", name).stdout
        assert SECRET in rejected("show", name, "--with-text").stdout
    unknown = rejected("show", "0@999999")
    assert isinstance(unknown.exception, RejectedError)
    assert "see `reef rejected`" in str(unknown.exception)


def test_a_record_goes_back_as_it_came_until_its_attempts_are_spent(rejected: Rejected) -> None:
    refused = {number: rejected.refused(number) for number in (1, 2)}
    names = rejected.write(list(refused.values()))
    for number, told in zip(refused, rejected.lines("redrive", *names), strict=True):
        record = rejected.read(told["place"])
        assert (record.topic, record.key) == (INTERACTIONS, refused[number].key)
        assert record.value == refused[number].value
        assert record.headers == (
            Header(name="trace", value=b"t"),
            Header(name=ATTEMPTS_HEADER, value=b"1"),
        )
    rejected.write([rejected.refused(1, attempts=1), rejected.refused(2, attempts=3)])
    told = rejected.lines("redrive", "--reason", rejected.reason, exit_code=1)
    assert [one.get("attempt") for one in told if "place" in one] == [2], "the latest refusal counts"
    assert ["got 3" in one["kept"] for one in told if "kept" in one] == [True]
    again = rejected.lines("redrive", names[1], exit_code=1)
    assert "fewer than 3 attempts" in again[0]["kept"], "an older refusal is no way around"
    assert rejected.lines("redrive", names[1], "--attempts-max", "4")[0]["attempt"] == 4


def test_what_may_not_go_back_stays_and_is_told(rejected: Rejected) -> None:
    (name,) = rejected.write([rejected.refused(1, source_topic=TRAINING)])
    (told,) = rejected.lines("redrive", name, exit_code=1)
    assert "does not stand by itself" in told["kept"]
    assert rejected("redrive").exit_code == 2
    assert rejected("redrive", name, "--reason", rejected.reason).exit_code == 2


def test_where_nothing_was_refused_one_line_says_so(rejected: Rejected) -> None:
    assert rejected("--reason", rejected.reason).stdout == "nothing of this kind was refused\n"
    assert rejected.lines("--reason", rejected.reason) == [{"counts": [], "refusals": []}]
