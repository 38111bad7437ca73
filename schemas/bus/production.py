"""Shell: what both kinds of producer share: events become records, blobs first, and records become promises.

Not a producer by itself: schemas/bus/publisher.py and schemas/bus/transactional.py are.
"""

import asyncio
import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError
from aiokafka.structs import RecordMetadata

from schemas.bus.access import BusLimits, KafkaAccess, client_options
from schemas.bus.failures import calling, until_open
from schemas.bus.patience import be_patient
from schemas.claims import Blob
from schemas.codec import encode_claim_checked
from schemas.contract import newest_versions
from schemas.events import Event
from schemas.ids import Sha256
from schemas.partitions import partition_of
from schemas.records import Outgoing, Placed
from schemas.topics import RECORD_BYTES_MAX, SCHEMAS_LOG, TOPICS, is_by_key, key_of, topic_of

_CLOSE_DEADLINE_S = 10.0
_GRACE_S = 1.0
"""aiokafka says at its own deadline what is wrong; ours only that it took too long."""


class BlobWriter(Protocol):
    """What a producer needs of a blob store."""

    def uri_of(self, sha256: Sha256) -> str:
        """Say where bytes of this digest will be."""

    async def put(self, blob: Blob) -> object:
        """Write a blob; again is harmless. Raises UnavailableError."""


class Delivery:
    """A record on its way; awaiting it gives its place, or raises what became of it."""

    __slots__ = ("_deadline_s", "_future", "_topic")

    def __init__(self, future: asyncio.Future[RecordMetadata], topic: str, deadline_s: float) -> None:
        self._future, self._topic, self._deadline_s = future, topic, deadline_s
        future.add_done_callback(_mark_as_seen)  # an aborted transaction awaits none of its deliveries

    def __await__(self) -> Generator[Any, None, Placed]:
        """Wait for the broker's answer. After a deadline the record may still arrive: then send it again."""
        return self._placed().__await__()

    async def _placed(self) -> Placed:
        async with calling(f"take a record on {self._topic}", self._deadline_s):
            metadata = await asyncio.shield(self._future)
        return Placed(topic=metadata.topic, partition=metadata.partition, offset=metadata.offset)


class Deliveries:
    """Many records on their way; awaiting them ends when all stand in the log, or raises what went wrong."""

    __slots__ = ("_deadline_s", "_futures")

    def __init__(self, futures: Sequence[asyncio.Future[RecordMetadata]], deadline_s: float) -> None:
        self._futures, self._deadline_s = futures, deadline_s
        for future in futures:
            future.add_done_callback(_mark_as_seen)

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for the broker's answers to all of them."""
        return self._all().__await__()

    async def _all(self) -> None:
        async with calling("take records", self._deadline_s):
            for future in self._futures:
                await asyncio.shield(future)


def _added(batch: Any, record: Outgoing) -> bool:
    headers = [(header.name, header.value) for header in record.headers]
    return batch.append(timestamp=None, key=record.key, value=record.value, headers=headers) is not None


def _mark_as_seen(future: asyncio.Future[RecordMetadata]) -> None:
    if not future.cancelled():
        future.exception()


class Production:
    """A producer of aiokafka with its blobs, open from `open` to `close`."""

    def __init__(
        self, access: KafkaAccess, *, blobs: BlobWriter, transactional_id: str | None, limits: BusLimits
    ) -> None:
        self.limits = limits
        self._access, self._blobs, self._transactional_id = access, blobs, transactional_id
        self._client: AIOKafkaProducer | None = None

    @property
    def client(self) -> AIOKafkaProducer:
        """The open producer."""
        assert self._client is not None, "use a publisher inside `async with`"
        return self._client

    async def open(self) -> None:
        """Open the producer, waiting for an absent cluster until the deadline."""
        await until_open(self._open_once, "open a producer", self.limits.open_deadline_s)

    async def _open_once(self) -> None:
        client = AIOKafkaProducer(**self._options())
        be_patient(client.client)
        try:
            await client.start()
            self._client = client
        finally:
            if self._client is None:
                await client.stop()

    def _options(self) -> dict[str, Any]:
        options = client_options(self._access, self.limits) | {
            # aiokafka gives up a batch without a leader after this time: no sooner than its sender does
            "request_timeout_ms": int(self.limits.deadline_s * 1000),
            "enable_idempotence": True,
            "acks": "all",
            "compression_type": "zstd",
            "linger_ms": self.limits.linger_ms,
            "max_batch_size": self.limits.batch_bytes_max,
            "max_request_size": RECORD_BYTES_MAX,
        }
        if self._transactional_id is not None:
            options["transactional_id"] = self._transactional_id
            options["transaction_timeout_ms"] = self.limits.transaction_timeout_ms
        return options

    async def close(self) -> None:
        """Send what waits, within a deadline, then close; what could not be sent fails its delivery."""
        if self._client is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_DEADLINE_S):
                    await self._client.flush()
        await self.abandon()

    async def abandon(self) -> None:
        """Close without sending what waits: after an error no later record may come before an earlier one."""
        client, self._client = self._client, None
        if client is None:
            return
        # aiokafka's stop() waits for ever for a broker that is away, unless nothing is left to send
        client._message_accumulator.fail_all(KafkaTimeoutError("closed before the broker took it"))
        async with calling("close a producer", _CLOSE_DEADLINE_S):
            await client.stop()

    async def prepare(self, event: Event, *, topic: str | None, partition: int | None) -> Outgoing:
        """Encode an event, and write its blobs if it is too large for the log."""
        topic = topic or topic_of(type(event))
        assert topic not in TOPICS or type(event) in TOPICS[topic].events, (topic, type(event))
        assert partition is not None or is_by_key(type(event), topic), f"name the partition of {topic}"
        value, blobs = encode_claim_checked(event, uri_of=self._blobs.uri_of)
        for blob in blobs:
            await self._blobs.put(blob)
        return Outgoing(topic=topic, key=key_of(event), value=value, partition=partition)

    async def send(self, outgoing: Outgoing) -> Delivery:
        """Hand a record to the producer; records of one partition keep the order of these calls."""
        async with calling(f"take records on {outgoing.topic}", self.limits.deadline_s + _GRACE_S):
            partition = outgoing.partition
            if partition is None:
                partition = partition_of(outgoing.key, await self.num_partitions(outgoing.topic))
            future = await self.client.send(
                outgoing.topic,
                outgoing.value,
                outgoing.key,
                partition,
                headers=[(header.name, header.value) for header in outgoing.headers],
            )
        return Delivery(future, outgoing.topic, self.limits.deadline_s)

    async def send_all(self, records: Sequence[Outgoing]) -> Deliveries:
        """Hand many records over at a fraction of what each alone costs; order holds within a partition."""
        groups: dict[tuple[str, int], list[Outgoing]] = {}
        deadline_s = self.limits.deadline_s
        futures: list[asyncio.Future[RecordMetadata]] = []
        async with calling(f"take {len(records)} records", deadline_s + _GRACE_S):
            for record in records:
                partition = record.partition
                if partition is None:
                    partition = partition_of(record.key, await self.num_partitions(record.topic))
                groups.setdefault((record.topic, partition), []).append(record)
            for (topic, partition), group in groups.items():
                for batch in self._batches(group):
                    futures.append(await self.client.send_batch(batch, topic, partition=partition))
        return Deliveries(futures, deadline_s)

    def _batches(self, records: Sequence[Outgoing]) -> Iterator[Any]:
        batch = self.client.create_batch()
        for record in records:
            if not _added(batch, record):
                yield batch
                batch = self.client.create_batch()
                _added(batch, record)  # an empty batch takes a record of any size; the broker judges it
        yield batch

    async def num_partitions(self, topic: str) -> int:
        """Count the partitions of a topic."""
        async with calling(f"describe {topic}", self.limits.deadline_s + _GRACE_S):
            return len(await self.client.partitions_for(topic))

    async def send_schemas(self) -> list[Delivery]:
        """Put every schema that we write into the log, so that older readers can read us (STREAMS 14)."""
        return [
            await self.send(
                Outgoing(topic=SCHEMAS_LOG, key=version.fingerprint, value=version.json.encode(), partition=0)
            )
            for version in newest_versions().values()
        ]
