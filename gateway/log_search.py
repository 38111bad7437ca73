"""Shell: where in the log an experience or a seal stands, looked for from the time when it must have come.

Only for explanations: views would have to read all experience for it. A search is bounded, so it may end
without a find, and where the log does not answer there is none.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.projection import place_of
from schemas.bus import BusLimits, KafkaAccess, Reader, SchemaLog
from schemas.codec import decode_without_blobs
from schemas.errors import RejectedError, UnavailableError
from schemas.events import BatchSealed, Event, ExperienceAssembled
from schemas.partitions import partition_of
from schemas.topics import EXPERIENCE, TRAINING

RECORDS_MAX = 20_000
"""Records that one search reads."""
SEARCH_S_MAX = 5.0
_LIMITS = BusLimits(open_deadline_s=3.0, deadline_s=5.0)

Found = dict[str, Any]


class LogSearch:
    """Finds single events of a scenario."""

    def __init__(self, access: KafkaAccess, *, num_partitions: int) -> None:
        self._access, self._num_partitions = access, num_partitions

    async def experience(self, scenario: str, receipt: str, *, since_us: int) -> Found | None:
        """Find the experience that a call is part of."""

        def show(event: Event) -> Found | None:
            return _experience(event) if _has(event, receipt) else None

        return await self._first(EXPERIENCE, scenario, since_us, show)

    async def seal(self, scenario: str, batch_id: str, *, since_us: int) -> Found | None:
        """Find the seal of a batch."""

        def show(event: Event) -> Found | None:
            return _seal(event) if isinstance(event, BatchSealed) and event.batch_id == batch_id else None

        return await self._first(TRAINING, scenario, since_us, show)

    async def _first(
        self, topic: str, scenario: str, since_us: int, show: Callable[[Event], Found | None]
    ) -> Found | None:
        partition = partition_of(scenario.encode(), self._num_partitions)
        try:
            async with (
                asyncio.timeout(SEARCH_S_MAX),
                Reader(self._access, limits=_LIMITS) as reader,
                SchemaLog(self._access, limits=_LIMITS) as schema_log,
            ):
                return await self._search(reader, schema_log, (topic, partition, since_us), show)
        except (TimeoutError, UnavailableError):
            return None

    async def _search(
        self,
        reader: Reader,
        schema_log: SchemaLog,
        start: tuple[str, int, int],
        show: Callable[[Event], Found | None],
    ) -> Found | None:
        topic, partition, since_us = start
        first = await reader.offset_at(topic, partition, since_us)
        last = min(await reader.end_offset(topic, partition), first + RECORDS_MAX) - 1
        if last < first:
            return None
        async for record in reader.read_range(topic, partition, first, last):
            try:
                event = decode_without_blobs(record.value or b"", foreign=schema_log.decoders)
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
