import json
from uuid import uuid4

import pytest

from schemas.blobs import BlobStore
from schemas.bus import KafkaAccess, Outgoing, Publisher, Resolver, SchemaLog, rejection
from schemas.codec import UnknownEventTypeError, decode, encode
from schemas.contract import Fingerprint, fingerprint_of, newest_versions, parsed
from schemas.errors import RejectedError
from schemas.events import EventRejected
from schemas.topics import INTERACTIONS, REJECTED, SCHEMAS_LOG
from tests.builders import a_clock_ticked, a_feedback_reported, a_release_advanced
from tests.contract.bus.conftest import MakeTopic, everything

pytestmark = pytest.mark.kafka

POISON = [
    b"",
    b"\xc3",
    b"not avro at all",
    b"\xc3\x01" + b"\xff" * 8 + b"body",
    encode(a_feedback_reported())[:-3],
]


def a_newer_schema() -> str:
    """Give FeedbackReported as a later version might be: with one more field at its end."""
    schema = json.loads(newest_versions()["FeedbackReported"].json)
    addition = {"name": f"added_{uuid4().hex}", "type": "long", "default": 0}
    return json.dumps(schema | {"fields": [*schema["fields"], addition]})


def written_by(schema_json: str, body: bytes) -> tuple[Fingerprint, bytes]:
    fingerprint = fingerprint_of(parsed(schema_json))
    return fingerprint, b"\xc3\x01" + fingerprint + body


def a_schema(key: bytes, schema_json: str) -> Outgoing:
    return Outgoing(topic=SCHEMAS_LOG, key=key, value=schema_json.encode(), partition=0)


async def test_a_gateway_newer_than_its_readers_is_understood(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic, schema_json = await make_topic(), a_newer_schema()
    seven = b"\x0e"
    fingerprint, value = written_by(schema_json, encode(a_feedback_reported())[10:] + seven)
    async with Publisher(access, blobs=blobs) as publisher, SchemaLog(access) as schema_log:
        resolver = Resolver(schema_log, blobs)
        await publisher.publish_record(Outgoing(topic=topic, key=b"k", value=value))
        (record,) = await everything(access, topic)
        with pytest.raises(RejectedError) as unknown:
            await resolver.resolve(record)
        assert unknown.value.reason == "unknown_fingerprint"
        await publisher.publish_record(a_schema(fingerprint, schema_json))
        assert await resolver.resolve(record) == a_feedback_reported()


async def test_a_known_schema_of_an_unknown_event_stops_the_worker(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    schema_json = json.dumps(
        {"type": "record", "name": f"Dreamt{uuid4().hex}", "namespace": "reef", "fields": []}
    )
    fingerprint, value = written_by(schema_json, b"")
    async with Publisher(access, blobs=blobs) as publisher, SchemaLog(access) as schema_log:
        await publisher.publish_record(a_schema(fingerprint, schema_json))
        await publisher.publish_record(Outgoing(topic=topic, key=b"k", value=value))
        (record,) = await everything(access, topic)
        with pytest.raises(UnknownEventTypeError, match="upgrade"):
            await Resolver(schema_log, blobs).resolve(record)


@pytest.mark.parametrize(
    "schema",
    [
        b"\xff\xfe",
        b"{}",
        b"[]",
        b'{"type":"record","name":"X","fields":[{"name":"a","type":"unheard_of"}]}',
        b'{"type":"record","name":"1 2","fields":[]}',
        b"[" * 100_000,
        b'"string"',
        b'{"type":"record","name":"X","fields":1}',
    ],
)
async def test_nonsense_in_the_schema_log_harms_nobody(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore, schema: bytes
) -> None:
    topic, schema_json = await make_topic(), a_newer_schema()
    fingerprint, value = written_by(schema_json, encode(a_feedback_reported())[10:] + b"\x00")
    async with Publisher(access, blobs=blobs) as publisher, SchemaLog(access) as schema_log:
        for key, nonsense in ((fingerprint, schema), (b"", schema), (b"12345678", schema_json.encode())):
            await publisher.publish_record(Outgoing(topic=SCHEMAS_LOG, key=key, value=nonsense, partition=0))
        await publisher.publish_record(a_schema(fingerprint, schema_json))
        await publisher.publish_record(Outgoing(topic=topic, key=b"k", value=value))
        (record,) = await everything(access, topic)
        assert await Resolver(schema_log, blobs).resolve(record) == a_feedback_reported()


async def test_poison_becomes_event_rejected_with_all_its_bytes(
    access: KafkaAccess, make_topic: MakeTopic, blobs: BlobStore
) -> None:
    topic = await make_topic()
    async with Publisher(access, blobs=blobs) as publisher, SchemaLog(access) as schema_log:
        resolver = Resolver(schema_log, blobs)
        for value in [*POISON, None]:
            await publisher.publish_record(Outgoing(topic=topic, key=b"\xffkey", value=value))
        for record in await everything(access, topic):
            with pytest.raises(RejectedError) as refused:
                await resolver.resolve(record)
            rejected = rejection(record, refused.value, "codec")
            placed = await publisher.publish(rejected)
            (found,) = [
                decode(r.value or b"")
                for r in await everything(access, REJECTED, placed.partition)
                if r.offset == placed.offset
            ]
            assert isinstance(found, EventRejected)
            assert found == rejected
            assert (found.key, found.value) == (record.key, record.value)
            assert (found.source_topic, found.source_offset) == (topic, record.offset)


async def test_an_event_in_a_topic_of_others_is_refused(access: KafkaAccess, blobs: BlobStore) -> None:
    async with Publisher(access, blobs=blobs) as publisher, SchemaLog(access) as schema_log:
        for event in (a_release_advanced(), a_clock_ticked()):
            placed = await publisher.publish_record(
                Outgoing(topic=INTERACTIONS, key=b"k", value=encode(event), partition=2)
            )
        stray, at_home = (await everything(access, INTERACTIONS, placed.partition))[-2:]
        with pytest.raises(RejectedError, match="got ReleaseAdvanced") as foreign:
            await Resolver(schema_log, blobs).resolve(stray)
        assert foreign.value.reason == "foreign_event"
        assert await Resolver(schema_log, blobs).resolve(at_home) == a_clock_ticked()
