"""Shell: replay topics, and no others: a replay may state what would have been, never what is.

Refused here, whatever the caller asks for: a live topic, a command, a swap. Schemas are not written either,
since `reef.schemas.v1` is live: readers know them, or have them from the services.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Final, Self

from schemas.blobs import open_blob_store
from schemas.bus import BusLimits, Delivery, KafkaAccess, Place, Reader
from schemas.bus.production import Production
from schemas.errors import RejectedError
from schemas.events import Event
from schemas.topic_admin import describe_topics, ensure_topics
from schemas.topics import EXPERIENCE, OUTCOMES, TOPICS, TRAINING

REPLAYED: Final = (EXPERIENCE, TRAINING, OUTCOMES)
"""What folds say to others. None of it is a command or a swap."""
IN_FLIGHT_MAX: Final = 2_000
"""Records on their way before the first is waited for."""
_SUFFIX = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def replay_topic(topic: str, suffix: str) -> str:
    """Name the replay topic beside a live one. Raises RejectedError."""
    if topic not in REPLAYED:
        raise RejectedError(
            f"expected one of {', '.join(REPLAYED)}, got {topic}: a replay states nothing else",
            reason="live_topic",
        )
    if not _SUFFIX.fullmatch(suffix):
        raise RejectedError(
            f"--out-topics: expected a suffix of a-z, 0-9 and -, 40 characters at most, got {suffix!r}: the "
            "topics will be <topic>.replay.<suffix>, and no live topic is ever written",
            reason="bad_suffix",
        )
    return f"{topic}.replay.{suffix}"


def names_of(suffix: str) -> Mapping[str, str]:
    """Name all replay topics of a suffix by the live ones. Raises RejectedError."""
    return MappingProxyType({topic: replay_topic(topic, suffix) for topic in REPLAYED})


class ReplayTopics:
    """Writes one replay's topics, which must be new; used inside `async with`."""

    def __init__(
        self, access: KafkaAccess, blobs_url: str, suffix: str, *, num_partitions: int, copies: int
    ) -> None:
        """Name the topics. Raises RejectedError."""
        self._names = names_of(suffix)
        self._access, self._num_partitions, self._copies = access, num_partitions, copies
        self._production = Production(
            access, blobs=open_blob_store(blobs_url), transactional_id=None, limits=BusLimits()
        )

    async def __aenter__(self) -> Self:
        await self._make()
        await self._production.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self._production.close() if kind is None else self._production.abandon())

    async def _make(self) -> None:
        specs = [
            replace(TOPICS[topic], name=name, num_partitions=self._num_partitions)
            for topic, name in self._names.items()
        ]
        await self.check_unused(self._access, self._names.values())
        await ensure_topics(
            self._access, specs=specs, num_partitions=self._num_partitions, replication_factor=self._copies
        )

    @staticmethod
    async def check_unused(access: KafkaAccess, names: Iterable[str]) -> None:
        """Refuse topics that hold records: two replays in one would be neither. Raises RejectedError."""
        found = await describe_topics(access, names)
        places = [Place(name, at) for name, topic in found.items() for at in range(topic.num_partitions)]
        if not places:
            return
        async with Reader(access) as reader:
            bounds = await reader.bounds(places)
        for place, held in sorted(bounds.items()):
            if held.end > 0:
                raise RejectedError(
                    f"expected {place.topic} to be new, but it holds records: choose another suffix, or "
                    "delete the topic first",
                    reason="topic_in_use",
                )

    async def write(self, topic: str, events: Iterator[Event]) -> int:
        """Write what would have gone to a live topic; give how many. Raises RejectedError."""
        name = self._names.get(topic)
        if name is None:
            raise RejectedError(f"expected one of {', '.join(self._names)}, got {topic}", reason="live_topic")
        num_written = 0
        waiting: list[Delivery] = []
        for event in events:
            num_written += 1
            outgoing = await self._production.prepare(event, topic=name, partition=None)
            waiting.append(await self._production.send(outgoing))
            if len(waiting) >= IN_FLIGHT_MAX:
                for delivery in waiting:
                    await delivery
                waiting.clear()
        for delivery in waiting:
            await delivery
        return num_written
