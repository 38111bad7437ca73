"""Shell: outputs, state and offsets of one batch become visible together, or not at all.

After any error the transaction is aborted or left for the broker to abort (10 s); then close this publisher,
open another and load the state again: only the log knows what was committed.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Self

from aiokafka.structs import TopicPartition

from schemas.bus.access import BusLimits, KafkaAccess
from schemas.bus.failures import calling
from schemas.bus.production import BlobWriter, Delivery, Production
from schemas.errors import ConflictError, UnavailableError
from schemas.events import Event
from schemas.records import Outgoing, Place, Placed


class TransactionalPublisher:
    """The one producer of its transactional id: opening it fences every earlier one. Inside `async with`."""

    def __init__(
        self,
        access: KafkaAccess,
        transactional_id: str,
        *,
        blobs: BlobWriter,
        limits: BusLimits | None = None,
    ) -> None:
        self._production = Production(
            access, blobs=blobs, transactional_id=transactional_id, limits=limits or BusLimits()
        )
        self._transactional_id = transactional_id
        self._sent: list[Delivery] | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            await self._production.open()
            undo.push_async_callback(self._production.close)
            async with self.transaction():
                self._deliveries.extend(await self._production.send_schemas())
            undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._production.close()

    @property
    def _deliveries(self) -> list[Delivery]:
        assert self._sent is not None, "send inside `async with publisher.transaction()`"
        return self._sent

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Commit everything that is sent inside; an error inside, or of any record, aborts all of it.

        1. Begin. 2. The body sends. 3. Every record must be confirmed: aiokafka would commit without those
        that the broker refused. 4. Commit.
        Readers see it a little after this returns; whoever opens the same id sees all of it.
        Raises ConflictError `fenced` when a newer producer has the id, UnavailableError when the end of the
        transaction is unknown.
        """
        assert self._sent is None, "one transaction at a time"
        await self._begin()
        self._sent = []
        is_complete = False
        try:
            yield self
            await self.delivered()
            is_complete = True
        finally:
            self._sent = None
            await (self._commit() if is_complete else self._abort())

    async def _begin(self) -> None:
        if self._is_spent:
            raise ConflictError(
                f"expected a producer that can go on, got one of {self._transactional_id} that was fenced or "
                "broke: open another",
                reason="fenced",
            )
        async with calling(
            f"begin a transaction of {self._transactional_id}", self._production.limits.deadline_s
        ):
            await self._production.client.begin_transaction()

    @property
    def _is_spent(self) -> bool:
        return bool(self._production.client._txn_manager.is_fatal_error())

    async def _commit(self) -> None:
        async with calling(
            f"commit a transaction of {self._transactional_id}", self._production.limits.deadline_s
        ):
            await self._production.client.commit_transaction()

    async def _abort(self) -> None:
        # the first error is the one to tell; what cannot be aborted ends by the transaction's own deadline
        with suppress(ConflictError, UnavailableError):
            async with calling(
                f"abort a transaction of {self._transactional_id}", self._production.limits.deadline_s
            ):
                if not self._is_spent:
                    await self._production.client.abort_transaction()

    async def prepare(
        self, event: Event, *, topic: str | None = None, partition: int | None = None
    ) -> Outgoing:
        """Encode an event and write its blobs: before the transaction begins, since that has 10 s."""
        return await self._production.prepare(event, topic=topic, partition=partition)

    async def send(self, event: Event, *, topic: str | None = None, partition: int | None = None) -> None:
        """Write an event in this transaction."""
        await self.send_record(await self.prepare(event, topic=topic, partition=partition))

    async def send_record(self, outgoing: Outgoing) -> None:
        """Write a record of any bytes in this transaction, such as a state entry."""
        deliveries = self._deliveries
        deliveries.append(await self._production.send(outgoing))

    async def delivered(self) -> tuple[Placed, ...]:
        """Wait until the log has all that was sent in this transaction; readers see it after the commit."""
        return tuple([await delivery for delivery in self._deliveries])

    async def send_offsets(self, next_offsets: Mapping[Place, int], *, group: str) -> None:
        """Commit, with this transaction, the offsets from which the group goes on."""
        assert self._sent is not None, "send inside `async with publisher.transaction()`"
        offsets = {TopicPartition(*place): offset for place, offset in next_offsets.items()}
        async with calling(f"take offsets of {group}", self._production.limits.deadline_s):
            await self._production.client.send_offsets_to_transaction(offsets, group)

    async def num_partitions(self, topic: str) -> int:
        """Count the partitions of a topic."""
        return await self._production.num_partitions(topic)
