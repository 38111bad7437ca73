"""Shell: where in the log an experience or a seal stands, looked for from the time when it must have come.

Only for explanations: views would have to read all experience for it. A search is bounded, so it may end
without a find, and where the log does not answer there is none.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from gateway.projection import place_of
from schemas.bus import BusLimits, KafkaAccess, Place, Reader, Record, SchemaLog
from schemas.codec import decode_without_blobs
from schemas.errors import RejectedError, UnavailableError
from schemas.events import BatchSealed, Event, ExperienceAssembled
from schemas.partitions import partition_of
from schemas.topics import EXPERIENCE, TRAINING

RECORDS_MAX = 20_000
"""Records that one search reads."""
SEARCH_S_MAX = 5.0
"""Waiting for others included."""
SEARCHES_MAX = 2
"""At once: each reads the log, and answers to clients come first."""
SLICE_RECORDS = 16
"""Records looked at before answers have their turn again."""
_LIMITS = BusLimits(open_deadline_s=3.0, deadline_s=5.0)

Found = dict[str, Any]
Show = Callable[[Event], Found | None]
"""Shows the event that is looked for; None for others."""


class LogSearch:
    """Finds single events of a scenario."""

    def __init__(self, access: KafkaAccess, *, num_partitions: int) -> None:
        self._access, self._num_partitions = access, num_partitions
        self._turns = asyncio.Semaphore(SEARCHES_MAX)

    async def experience(self, scenario: str, receipt: str, *, since_us: int) -> Found | None:
        """Find the experience that a call is part of."""

        def show(event: Event) -> Found | None:
            return _experience(event) if _has(event, receipt) else None

        return await self._first(EXPERIENCE, scenario, since_us, receipt, show)

    async def seal(self, scenario: str, batch_id: str, *, since_us: int) -> Found | None:
        """Find the seal of a batch."""

        def show(event: Event) -> Found | None:
            return _seal(event) if isinstance(event, BatchSealed) and event.batch_id == batch_id else None

        return await self._first(TRAINING, scenario, since_us, batch_id, show)

    async def _first(self, topic: str, scenario: str, since_us: int, quoted: str, show: Show) -> Found | None:
        place = Place(topic, partition_of(scenario.encode(), self._num_partitions))
        try:
            async with (
                asyncio.timeout(SEARCH_S_MAX),
                self._turns,
                Reader(self._access, limits=_LIMITS) as reader,
                SchemaLog(self._access, limits=_LIMITS) as schema_log,
            ):
                first = await reader.offset_at(*place, since_us)
                last = min(await reader.end_offset(*place), first + RECORDS_MAX) - 1
                if last < first:
                    return None
                records = reader.read_range(*place, first, last)
                return await _search(records, schema_log, quoted.encode(), show)
        except (TimeoutError, UnavailableError):
            return None


async def _search(
    records: AsyncIterator[Record], schema_log: SchemaLog, quoted: bytes, show: Show
) -> Found | None:
    number = 0
    async for record in records:
        number += 1
        if number % SLICE_RECORDS == 0:
            await asyncio.sleep(0)
        if record.value is None or quoted not in record.value:
            continue  # ids stand in an event as they are: most records need no decoding
        try:
            event = decode_without_blobs(record.value, foreign=schema_log.decoders)
        except RejectedError:
            continue
        if (shown := show(event)) is not None:
            return {**shown, "place": place_of(record)}
    return None


def _has(event: Event, receipt: str) -> bool:
    return isinstance(event, ExperienceAssembled) and receipt in event.receipts


def _experience(event: Event) -> Found:
    assert isinstance(event, ExperienceAssembled)
    return {
        "experience_id": event.experience_id,
        "receipts": list(event.receipts),
        "report_ids": list(event.report_ids),
        "reward": event.reward,
        "release_seq_first": event.release_seq_first,
        "release_seq_last": event.release_seq_last,
        "num_tokens": len(event.loss_mask),
        "assembled_at_us": event.assembled_at_us,
    }


def _seal(event: BatchSealed) -> Found:
    return {
        "batch_seq": event.batch_seq,
        "base_release_id": event.base_release_id,
        "base_release_seq": event.base_release_seq,
        "num_samples": len(event.experience_ids),
        "recipe": event.recipe,
        "sealed_at_us": event.sealed_at_us,
    }
