"""Shell: what the stages said, read back from their spools in an order that is always the same."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from schemas.codec import decode
from schemas.events import Event
from schemas.records import Place
from streams.replay.plan import BATCHES, SESSIONS, Plan
from streams.replay.spool import Spool
from streams.replay.tables import digest_of


def said(plan: Plan, stage: str, topic: str) -> Iterator[Event]:
    """Give what a stage said to a topic, partition by partition."""
    for path in _spools(plan, stage, topic):
        with Spool(path) as spool:
            for record in spool:
                yield decode(record.value)


def all_said(plan: Plan, topic: str) -> Iterator[Event]:
    """Give what both stages said to a topic."""
    for stage in (SESSIONS, BATCHES):
        yield from said(plan, stage, topic)


def digest_of_said(plan: Plan, topic: str) -> str:
    """Digest all that was said to a topic."""
    digests = [digest_of(path) for stage in (SESSIONS, BATCHES) for path in _spools(plan, stage, topic)]
    return sha256("".join(digests).encode()).hexdigest()


def _spools(plan: Plan, stage: str, topic: str) -> Iterator[Path]:
    count = plan.num_interactions if stage == SESSIONS else plan.num_experience
    for number in range(count):
        for partition in range(plan.num_experience):
            path = plan.said_of(stage, number, Place(topic, partition))
            if path.exists():
                yield path
