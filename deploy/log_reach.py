"""Shell: how commands that read or write the log reach it, and how records become events for them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from deploy.configuration import read_configuration
from schemas.blobs import open_blob_store
from schemas.bus import BusLimits, KafkaAccess, Place, Reader, Record, Resolver, SchemaLog, kafka_access
from schemas.codec import decode_without_blobs, fingerprint_in
from schemas.errors import RejectedError
from schemas.events import Event
from schemas.settings import Settings
from schemas.settings.secrets import kafka_login
from schemas.settings.settings import process_environment
from schemas.topic_admin import describe_topics
from schemas.topics import TOPICS

LIMITS = BusLimits(open_deadline_s=5.0, deadline_s=15.0, request_timeout_ms=5_000)

Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", help="host:port of a broker, instead of the configuration's")
]
WithText = Annotated[
    bool, typer.Option("--with-text", help="show what people wrote, and token arrays; hidden otherwise")
]


def reach_log(
    config: Path | None, words: Sequence[str], bootstrap: str | None
) -> tuple[Settings, KafkaAccess]:
    """Read the configuration and say how its log is reached; nothing is asked yet."""
    settings = read_configuration(config, words).settings
    if bootstrap is not None:
        return settings, KafkaAccess(bootstrap=bootstrap)
    return settings, kafka_access(settings.kafka, kafka_login(settings, process_environment()))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """A log that is open for reading."""

    reader: Reader
    """Reads records."""
    schema_log: SchemaLog
    """Knows schemas of other versions."""
    resolver: Resolver
    """Makes whole events, with what is in blobs."""

    async def event(self, record: Record, *, is_whole: bool) -> Event:
        """Decode a record, `is_whole` with what is in blobs. Raises RejectedError."""
        if is_whole:
            return await self.resolver.resolve(record)
        if record.value is None:
            raise RejectedError("expected an event, got a tombstone", reason="tombstone")
        return await self.event_in(record.value)

    async def event_in(self, value: bytes) -> Event:
        """Decode bytes, without what is in blobs. Raises RejectedError."""
        try:
            return decode_without_blobs(value, foreign=self.schema_log.decoders)
        except RejectedError as error:
            if error.reason != "unknown_fingerprint":
                raise
        await self.schema_log.learn(fingerprint_in(value))
        return decode_without_blobs(value, foreign=self.schema_log.decoders)


@asynccontextmanager
async def open_log(settings: Settings, access: KafkaAccess) -> AsyncIterator[OpenLog]:
    """Open the log for reading. Raises UnavailableError."""
    async with Reader(access, limits=LIMITS) as reader, SchemaLog(access, limits=LIMITS) as schema_log:
        resolver = Resolver(schema_log, open_blob_store(settings.blobs_url))
        yield OpenLog(reader=reader, schema_log=schema_log, resolver=resolver)


def topic_named(word: str) -> str:
    """Complete a short name: `interactions` is `reef.interactions.v1`."""
    whole = f"reef.{word}.v1"
    return whole if whole in TOPICS else word


def short_name(topic: str) -> str:
    """Shorten a name as `topic_named` completes it."""
    return topic.removeprefix("reef.").removesuffix(".v1")


async def places_of(access: KafkaAccess, topic: str) -> list[Place]:
    """Name a topic's partitions. Raises RejectedError when there is no such topic, or not yet."""
    found = (await describe_topics(access, [topic], limits=LIMITS)).get(topic)
    if found is None:
        raise absent(topic)
    return [Place(topic, partition) for partition in range(found.num_partitions)]


def absent(topic: str) -> RejectedError:
    """Say what to do about a topic that the broker does not have."""
    if topic in TOPICS:
        message = f"expected topic {topic}, it is not there yet: `reef serve` creates it, "
        message += "and so does `reef topics --create`"
    else:
        message = f"expected a topic of the log, got {topic[:80]!r}: see `reef topics`"
    return RejectedError(message, reason="no_such_topic")
