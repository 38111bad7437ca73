"""Shell: events and records into the log, each once however often the network repeats itself.

At least once all the same: after an error nobody knows whether the record stands. Close the publisher, open
another and send again from the lowest record that was not confirmed; then order holds too (STREAMS 31).
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from schemas.bus.access import BusLimits, KafkaAccess
from schemas.bus.production import BlobWriter, Deliveries, Delivery, Production
from schemas.events import Event
from schemas.records import Outgoing, Placed


class Publisher:
    """An idempotent producer, acknowledged by all replicas; used inside `async with`."""

    def __init__(self, access: KafkaAccess, *, blobs: BlobWriter, limits: BusLimits | None = None) -> None:
        self._production = Production(
            access, blobs=blobs, transactional_id=None, limits=limits or BusLimits()
        )

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            await self._production.open()
            undo.push_async_callback(self._production.close)
            for delivery in await self._production.send_schemas():
                await delivery
            undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._production.close()
        else:
            await self._production.abandon()

    async def publish(
        self, event: Event, *, topic: str | None = None, partition: int | None = None
    ) -> Placed:
        """Write an event and wait until all replicas have it."""
        return await (await self.send(event, topic=topic, partition=partition))

    async def send(self, event: Event, *, topic: str | None = None, partition: int | None = None) -> Delivery:
        """Write an event without waiting; it is safe once the delivery was awaited."""
        return await self.send_record(await self.prepare(event, topic=topic, partition=partition))

    async def publish_to_all(self, event: Event, *, topic: str) -> tuple[Placed, ...]:
        """Write an event into every partition of a topic, as configuration and erasure need."""
        deliveries = [
            await self.send(event, topic=topic, partition=partition)
            for partition in range(await self.num_partitions(topic))
        ]
        return tuple([await delivery for delivery in deliveries])

    async def prepare(
        self, event: Event, *, topic: str | None = None, partition: int | None = None
    ) -> Outgoing:
        """Encode an event and write its blobs; the record can be kept and sent later, also by another."""
        return await self._production.prepare(event, topic=topic, partition=partition)

    async def send_record(self, outgoing: Outgoing) -> Delivery:
        """Write a record of any bytes without waiting."""
        return await self._production.send(outgoing)

    async def send_records(self, records: Sequence[Outgoing]) -> Deliveries:
        """Write many records without waiting, each partition's in their order."""
        return await self._production.send_all(records)

    async def publish_record(self, outgoing: Outgoing) -> Placed:
        """Write a record of any bytes and wait until all replicas have it."""
        return await (await self.send_record(outgoing))

    async def num_partitions(self, topic: str) -> int:
        """Count the partitions of a topic."""
        return await self._production.num_partitions(topic)
