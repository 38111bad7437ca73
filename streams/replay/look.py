"""Shell: before anything is read: which targets and ranges can be, and what the log begins with."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.bus import Bounds, Place
from schemas.errors import RejectedError
from schemas.events import BatchSealed, ExperienceAssembled
from schemas.ids import BatchId
from schemas.topics import EXPERIENCE, INTERACTIONS, TRAINING
from streams.replay.change import Change
from streams.replay.destination import ReplayTopics, names_of
from streams.replay.found import Found, Prelude
from streams.replay.ranges import checked
from streams.replay.request import Deployment, Request
from streams.replay.source import READ_TOPICS, LogSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Where the log begins and ends, and what of it is read."""

    held: Mapping[Place, Bounds]
    ranges: Mapping[Place, Bounds]
    begins_at_us: int
    prelude: tuple[Prelude, ...]

    def number(self, topic: str) -> int:
        """Count a topic's partitions."""
        return sum(place.topic == topic for place in self.held)

    def size(self, topic: str) -> int:
        """Count the offsets of a topic's ranges."""
        return sum(each.end - each.start for place, each in self.ranges.items() if place.topic == topic)

    def is_from_start(self, topic: str) -> bool:
        """Whether nothing was ever before the ranges."""
        return all(each.start == 0 for place, each in self.ranges.items() if place.topic == topic)

    def holds(self, made: ExperienceAssembled) -> bool:
        """Whether what caused an experience is within the ranges."""
        bounds = self.ranges[Place(INTERACTIONS, made.source.partition)]
        return bounds.start <= made.source.offset < bounds.end


def check_targets(request: Request) -> None:
    """Refuse targets that are no replay's. Raises RejectedError."""
    if request.suffix is not None:
        names_of(request.suffix)
    if request.out is not None and request.out.exists() and any(request.out.iterdir()):
        raise RejectedError(
            f"--out: expected a new or empty folder, got {request.out}, which holds files: choose another",
            reason="out_in_use",
        )


async def look(request: Request, deployment: Deployment) -> Looked:
    """Find what is read. Raises RejectedError when it cannot be."""
    if request.suffix is not None:
        await ReplayTopics.check_unused(deployment.access, names_of(request.suffix).values())
    async with LogSource(deployment.access, deployment.blobs_url) as source:
        await source.places(*READ_TOPICS)
        held = await source.reader.bounds(await source.places(INTERACTIONS, EXPERIENCE))
        if request.manifest is not None:
            ranges = checked(request.manifest.ranges, held)
        else:
            ranges = await source.range_between(held, request.first, request.last)
        if all(bounds.start == 0 for bounds in ranges.values()):
            return Looked(held=held, ranges=ranges, begins_at_us=0, prelude=())
        times = [await source.first_time_us(place, bounds) for place, bounds in ranges.items()]
        begins_at_us = min([each for each in times if each], default=0)
        return Looked(held=held, ranges=ranges, begins_at_us=begins_at_us, prelude=await source.prelude())


async def live_batches(
    deployment: Deployment, looked: Looked, found: Found, change: Change
) -> frozenset[BatchId] | None:
    """Name the batches whose ends the log tells of; None when there can be no others (STREAMS 29, 30)."""
    if change:
        return frozenset()
    if looked.is_from_start(EXPERIENCE) and not found.erasures:
        return None
    async with LogSource(deployment.access, deployment.blobs_url) as source:
        sealed = [
            event.batch_id async for _, event in source.events(TRAINING) if isinstance(event, BatchSealed)
        ]
    return frozenset(sealed) | found.settled_batches
