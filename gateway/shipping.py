"""Shell: one sender per lane carries kept events to Kafka, in order, and starts again after every failure.

The order of these steps is what keeps the order of the log:

1. claim the lane's lowest rows;
2. write the blobs of large ones, then send all, in order;
3. once Kafka has them all, forget them and go on;
4. on any failure close the producer, wait, and begin at 1 with a new one.

Not a queue: what is sent stays in the outbox until Kafka has it, so it may be sent twice, and is never lost.

Next: gateway/errands.py
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import structlog

from gateway.outbox_metrics import OutboxMetrics
from gateway.outbox_rows import OutboxRows, Row
from gateway.outbox_writer import OutboxWriter
from schemas.bus import is_of_record
from schemas.claims import CLAIM_CHECK_THRESHOLD_BYTES, Blob, BlobRef
from schemas.codec import decode, encode_claim_checked
from schemas.errors import ReefError, RejectedError, UnavailableError
from schemas.ids import Sha256
from schemas.records import Outgoing

BATCH_ROWS_MAX = 500
"""Rows of a lane under way at once."""
BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of a lane under way at once, unless one row alone has more."""
GATHER_S = 0.1
"""Rest between batches: what comes meanwhile shares one request and one compression."""
BATCH_S_MAX = 60.0
"""How long Kafka may take for a batch before the sender starts again."""
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 5.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Producer(Protocol):
    """What a sender needs of Kafka; `schemas.bus.Publisher` is one."""

    async def send_records(self, records: Sequence[Outgoing], /) -> Awaitable[None]:
        """Queue records behind those before them; the answer comes when Kafka has all, or why it has not."""
        ...


class Blobs(Protocol):
    """What a sender needs of a blob store."""

    def uri_of(self, sha256: Sha256) -> str:
        """Say where a blob will be."""
        ...

    async def put(self, blob: Blob) -> BlobRef:
        """Write a blob; again is harmless. Raises UnavailableError."""
        ...


OpenProducer = Callable[[], AbstractAsyncContextManager[Producer]]
"""Opens a fresh idempotent producer. Raises UnavailableError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """What all lanes' senders share."""

    rows: OutboxRows
    """A reading connection, used under the lock of the claims."""
    writer: OutboxWriter
    """Forgets and buries rows."""
    open_producer: OpenProducer
    """Opens a producer of the sender's own."""
    blobs: Blobs
    """Where large fields go first."""
    metrics: OutboxMetrics
    """What happened."""


class LaneSender:
    """Carries one lane."""

    def __init__(self, lane: int, carrier: Carrier) -> None:
        self._lane = lane
        self._carrier = carrier
        self._has_rows = asyncio.Event()
        self._num_rows_max = BATCH_ROWS_MAX
        self._backoff_s = BACKOFF_FIRST_S

    def wake(self) -> None:
        """Say that the lane may hold rows."""
        self._has_rows.set()

    async def run(self) -> None:
        """Carry rows until cancelled."""
        while True:
            await self._has_rows.wait()
            try:
                async with self._carrier.open_producer() as producer:
                    await self._carry(producer)
            except ReefError as error:
                self._carrier.metrics.send_failed(error.reason)
                _log.warning("outbox_send_failed", lane=self._lane, reason=error.reason, detail=str(error))
                self._has_rows.set()  # what was not confirmed is still there
            finally:
                self._carrier.writer.claims.through[self._lane] = 0
            await asyncio.sleep(self._backoff_s * random.uniform(0.5, 1.0))
            self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)

    async def _carry(self, producer: Producer) -> None:
        while True:
            self._has_rows.clear()  # before the look: what comes after it wakes us
            rows = await asyncio.to_thread(self._claim)
            if not rows:
                await self._has_rows.wait()
                await asyncio.sleep(GATHER_S)
                continue
            await self._send(producer, rows)
            await self._carrier.writer.delete_through(self._lane, rows[-1].seq)
            self._carrier.metrics.shipped(len(rows))
            self._num_rows_max = min(2 * self._num_rows_max, BATCH_ROWS_MAX)
            self._backoff_s = BACKOFF_FIRST_S
            await asyncio.sleep(GATHER_S)

    def _claim(self) -> tuple[Row, ...]:
        claims = self._carrier.writer.claims
        with claims.lock:
            rows = self._carrier.rows.read(
                self._lane, num_rows_max=self._num_rows_max, bytes_max=BATCH_BYTES_MAX
            )
            claims.through[self._lane] = rows[-1].seq if rows else 0
        return rows

    async def _send(self, producer: Producer, rows: Sequence[Row]) -> None:
        try:
            async with asyncio.timeout(BATCH_S_MAX):
                outgoing = [await self._outgoing(row) for row in rows]
                await (await producer.send_records(outgoing))
        except TimeoutError as error:
            raise UnavailableError(
                f"expected Kafka to take {len(rows)} events within {BATCH_S_MAX:g} s: check that it runs",
                reason="deadline",
            ) from error
        except RejectedError as error:
            await self._refused(rows, error)

    async def _refused(self, rows: Sequence[Row], error: RejectedError) -> None:
        if len(rows) > 1:
            self._num_rows_max = 1  # one by one now: only the row at fault leaves the line
        elif is_of_record(error):  # a refusal of ours (the codec's), too
            await self._carrier.writer.bury(rows[0], reason=error.reason, detail=str(error))
            self._backoff_s = BACKOFF_FIRST_S
            _log.error("outbox_row_dead", topic=rows[0].topic, reason=error.reason, detail=str(error))
        raise error

    async def _outgoing(self, row: Row) -> Outgoing:
        value = row.value
        if len(value) > CLAIM_CHECK_THRESHOLD_BYTES:
            value, blobs = await asyncio.to_thread(self._claim_checked, value)
            for blob in blobs:
                await self._carrier.blobs.put(blob)
        return Outgoing(topic=row.topic, key=row.key, value=value)

    def _claim_checked(self, value: bytes) -> tuple[bytes, tuple[Blob, ...]]:
        return encode_claim_checked(
            decode(value), threshold_bytes=CLAIM_CHECK_THRESHOLD_BYTES, uri_of=self._carrier.blobs.uri_of
        )
