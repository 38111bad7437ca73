"""Shell: which blobs hold large fields of forgotten calls and of nothing else: those go at once (STREAMS 30).

A blob is named by the digest of its bytes, so another call with the same request names the same one: such a
blob stays, or that other call could not be read any more.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from deploy.log_reach import OpenLog
from schemas.bus import Place, Record
from schemas.claims import BlobRef, BlobsNeededError
from schemas.codec import decode
from schemas.errors import RejectedError
from schemas.events import InferenceCompleted
from schemas.ids import ScenarioName, Sha256
from schemas.partitions import partition_of
from schemas.topic_match import TopicFound
from schemas.topics import EXPERIENCE, INTERACTIONS, TRAINING

IsForgotten = Callable[[InferenceCompleted], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenBlobs:
    """What may be deleted, and what may not."""

    own: tuple[BlobRef, ...]
    """Named by forgotten calls alone."""
    shared: tuple[BlobRef, ...]
    """Named by other records too."""


async def forgotten_blobs(
    log: OpenLog,
    topics: Mapping[str, TopicFound],
    scenario: ScenarioName,
    *,
    keys: frozenset[bytes],
    is_forgotten: IsForgotten,
) -> ForgottenBlobs:
    """Find the blobs of these calls; the whole topic is read only when there are any."""
    found: dict[Sha256, BlobRef] = {}
    forgotten: set[tuple[int, int]] = set()
    num_partitions = topics[INTERACTIONS].num_partitions
    for partition in sorted({partition_of(key, num_partitions) for key in keys}):
        async for record in _records(log, Place(INTERACTIONS, partition)):
            refs = await _refs(log, record, is_forgotten) if record.key in keys else ()
            if refs:
                forgotten.add((record.partition, record.offset))
                found |= {ref.sha256: ref for ref in refs}
    shared: set[Sha256] = set()
    if found:
        places = [Place(INTERACTIONS, number) for number in range(num_partitions)]
        places += [
            Place(topic, partition_of(scenario.encode(), topics[topic].num_partitions))
            for topic in (EXPERIENCE, TRAINING)
        ]
        async for record in _of_all(log, places):
            if record.topic != INTERACTIONS or (record.partition, record.offset) not in forgotten:
                shared |= {sha256 for sha256 in found if sha256.encode() in (record.value or b"")}
    return ForgottenBlobs(
        own=tuple(ref for ref in found.values() if ref.sha256 not in shared),
        shared=tuple(ref for ref in found.values() if ref.sha256 in shared),
    )


async def _refs(log: OpenLog, record: Record, is_forgotten: IsForgotten) -> tuple[BlobRef, ...]:
    try:
        event = await log.event(record, is_whole=False)
        if not isinstance(event, InferenceCompleted) or not is_forgotten(event):
            return ()
        decode(record.value or b"", foreign=log.schema_log.decoders)
    except BlobsNeededError as needed:
        return needed.refs
    except RejectedError:
        pass  # what no fold takes reaches no batch
    return ()


async def _of_all(log: OpenLog, places: list[Place]) -> AsyncIterator[Record]:
    for place in places:
        async for record in _records(log, place):
            yield record


async def _records(log: OpenLog, place: Place) -> AsyncIterator[Record]:
    async for record in log.reader.read_to_end(*place, await log.reader.log_start(*place)):
        yield record
