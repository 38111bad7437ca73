"""Shell: the outbox: an event is durable here before its answer's last byte leaves, and in Kafka soon after.

`process` durability means: written to the journal of a local SQLite file, so that `kill -9` loses nothing.
`disk` means: the journal was synced, so that a loss of power does not either. Kafka's absence costs disk, up
to a limit, and never an answer. Not a broker: one gateway, one file, one reader.

Next: gateway/shipping.py
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from gateway.lasting import Lasting
from gateway.outbox_metrics import OutboxMetrics
from gateway.outbox_rows import Durability, OutboxRows, row_of
from gateway.outbox_writer import ROWS_HERE_MAX, OutboxWriter, WhenFull
from gateway.shipping import Blobs, Carrier, LaneSender, OpenProducer
from schemas.errors import UnavailableError
from schemas.events import Event

FILE_NAME = "outbox.sqlite"
NEARLY_FULL = 0.98
"""Dropping frees a hundredth of the limit, so that a full outbox stays above this share."""
DRAIN_S_MAX = 20.0
"""How long a clean stop waits for Kafka; what remains is shipped at the next start."""
CHECKPOINT_S = 0.5
"""How often the journal is moved into the file, beside the writer."""
JOURNAL_BYTES_MAX = 256 * 1024 * 1024
"""Beyond it the writer is held back until the journal is moved."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxOptions:
    """Where an outbox is and what it promises."""

    folder: Path
    """Of this gateway alone; created if missing."""
    num_partitions: int
    """As the topics have: `kafka.partitions`."""
    durability: Durability = "process"
    """What an acknowledged event survives."""
    bytes_max: int = 4 * 1024**3
    """Kept at most."""
    when_full: WhenFull = "drop_oldest"
    """What happens at that limit."""


class Outbox:
    """Keeps events and carries them to Kafka while it is open."""

    def __init__(
        self, options: OutboxOptions, *, open_producer: OpenProducer, blobs: Blobs, metrics: OutboxMetrics
    ) -> None:
        self._options = options
        self._open_producer = open_producer
        self._blobs = blobs
        self._metrics = metrics

    async def __aenter__(self) -> Self:
        """Open the file; what an earlier process left is shipped first. Raises UnavailableError."""
        self._options.folder.mkdir(parents=True, exist_ok=True)
        open_rows = partial(
            OutboxRows,
            self._options.folder / FILE_NAME,
            durability=self._options.durability,
            num_partitions=self._options.num_partitions,
        )
        self._written, self._read, self._journal = open_rows(), open_rows(), open_rows()
        self._written.prepare()
        self._writer = OutboxWriter(
            self._written,
            bytes_max=self._options.bytes_max,
            when_full=self._options.when_full,
            syncs=self._options.durability == "disk",
            metrics=self._metrics,
            on_committed=self._on_committed,
        )
        self._start()
        return self

    def _start(self) -> None:
        carrier = Carrier(
            rows=self._read,
            writer=self._writer,
            open_producer=self._open_producer,
            blobs=self._blobs,
            metrics=self._metrics,
        )
        self._emptied = asyncio.Event()
        self._senders = [LaneSender(lane, carrier) for lane in range(self._read.num_lanes)]
        self._is_open = True
        self._metrics.watch(
            num_rows=lambda: self.num_events,
            size_bytes=lambda: self.size_bytes,
            age_s=self.oldest_age_s,
            is_full=lambda: float(self.is_full),
            num_dead=self._num_dead,
        )
        _log.info("outbox_opened", num_events=self.num_events, size_bytes=self.size_bytes)
        self._writer.start()
        self._works = [
            *(self._sending(sender) for sender in self._senders),
            Lasting(self._move_journal, log_event="outbox_journal_failed"),
        ]
        for work in self._works:
            work.begin()
        self._on_committed()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for Kafka a while, then close; what remains is shipped at the next start."""
        await self.drain(DRAIN_S_MAX)
        self._is_open = False
        await asyncio.gather(*(work.end() for work in self._works))
        await self._writer.stop()
        await asyncio.to_thread(self._close_files)
        _log.info("outbox_closed", num_events=self.num_events, size_bytes=self.size_bytes)

    def _close_files(self) -> None:
        self._read.close()
        self._journal.close()
        self._written.checkpoint("TRUNCATE")
        self._written.close()

    async def append(self, *events: Event) -> None:
        """Keep events, all or none; returns when they are durable.

        What was passed is kept even if the caller is cancelled meanwhile. Raises RejectedError on values
        that the contract does not allow, UnavailableError if the disk refuses.
        """
        if len(events) <= ROWS_HERE_MAX:
            await self._writer.append([row_of(event) for event in events])
        else:
            await asyncio.shield(self._append_many(events))

    async def _append_many(self, events: Sequence[Event]) -> None:
        rows = await asyncio.to_thread(lambda: [row_of(event) for event in events])
        await self._writer.append(rows)

    def refuse_when_full(self) -> None:
        """Raise UnavailableError if the outbox is full and new calls are to be refused: asked at the door."""
        if self._options.when_full == "refuse" and self.is_full:
            raise UnavailableError(
                f"expected room in the outbox, got {self.size_bytes} of {self._options.bytes_max} bytes: "
                "try again when Kafka is back",
                reason="outbox_full",
            )

    async def drain(self, deadline_s: float) -> bool:
        """Wait until Kafka has everything; False when it does not by the deadline."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._emptied.wait()
        except TimeoutError:
            _log.warning("outbox_not_drained", num_events=self.num_events)
            return False
        return True

    async def waiting(self, topic: str, key: bytes) -> Sequence[bytes]:
        """Give the encoded events under a key that Kafka does not have yet, in order."""
        return await asyncio.to_thread(self._locked_waiting, topic, key)

    def _locked_waiting(self, topic: str, key: bytes) -> Sequence[bytes]:
        with self._writer.claims.lock:
            return self._read.waiting(topic, key)

    @property
    def num_events(self) -> int:
        """How many events Kafka does not have yet."""
        return self._writer.num_rows

    @property
    def size_bytes(self) -> int:
        """How much of the limit is used."""
        return self._writer.size_bytes

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached: events are being dropped, or new calls refused."""
        return self.size_bytes >= NEARLY_FULL * self._options.bytes_max

    def oldest_age_s(self) -> float:
        """Say how long the oldest event has waited; 0 when none waits."""
        with self._writer.claims.lock:
            oldest_at_us = self._read.oldest_at_us() if self._is_open else None
        return 0.0 if oldest_at_us is None else max(0.0, time.time_ns() / 1e9 - oldest_at_us / 1e6)

    def _num_dead(self) -> float:
        with self._writer.claims.lock:
            return float(self._read.num_dead()) if self._is_open else 0.0

    def _on_committed(self) -> None:
        if self.num_events == 0:
            self._emptied.set()
        else:
            self._emptied.clear()
            for sender in self._senders:
                sender.wake()

    def _sending(self, sender: LaneSender) -> Lasting:
        async def send() -> None:
            sender.wake()
            await sender.run()

        return Lasting(
            send, log_event="outbox_sender_failed", on_bug=lambda: self._metrics.send_failed("bug")
        )

    async def _move_journal(self) -> None:
        was_empty = True
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            left_bytes = await asyncio.to_thread(self._journal.checkpoint, "PASSIVE")
            if left_bytes > JOURNAL_BYTES_MAX:
                await asyncio.to_thread(self._journal.checkpoint, "RESTART")
            if self.num_events == 0 and not was_empty:
                await asyncio.to_thread(self._journal.shrink)
            was_empty = self.num_events == 0
