"""Shell: a replay against what happened: which samples appear, vanish, change or move, and why.

Held in one SQLite file of this replay, by id and digest, so that memory stays flat however long the log is.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from schemas.events import ExperienceAssembled, OutcomeSettled, TrainingSample

Side = Literal["live", "replay"]
What = Literal["appears", "vanishes", "changes", "moves"]

_DIGEST_BYTES = 8
_FIELDS = tuple([field.name for field in fields(ExperienceAssembled)])
_TABLES = """
CREATE TABLE samples (
    side TEXT, experience_id TEXT, scenario TEXT, batch_id TEXT, place INTEGER, digests BLOB, receipts TEXT,
    PRIMARY KEY (side, experience_id)
) WITHOUT ROWID;
CREATE TABLE made (
    side TEXT, experience_id TEXT, digest BLOB, PRIMARY KEY (side, experience_id)
) WITHOUT ROWID;
CREATE TABLE calls (
    side TEXT, receipt TEXT, experience_id TEXT, PRIMARY KEY (side, receipt, experience_id)
) WITHOUT ROWID;
CREATE TABLE outcomes (
    side TEXT, receipt TEXT, reason TEXT, PRIMARY KEY (side, receipt)
) WITHOUT ROWID;
"""
_MADE = """
SELECT sum(live.digest IS NOT NULL), sum(again.digest IS NOT NULL), sum(live.digest = again.digest) FROM
(SELECT DISTINCT experience_id FROM made) AS each
LEFT JOIN made AS live ON live.side = 'live' AND live.experience_id = each.experience_id
LEFT JOIN made AS again ON again.side = 'replay' AND again.experience_id = each.experience_id
"""
_ALONE = """
SELECT here.experience_id, here.scenario, here.batch_id, here.receipts FROM samples AS here
LEFT JOIN samples AS there ON there.side = ? AND there.experience_id = here.experience_id
WHERE here.side = ? AND there.experience_id IS NULL ORDER BY here.experience_id
"""
_BOTH = """
SELECT live.experience_id, live.scenario, live.receipts, live.digests, again.digests,
       live.batch_id, again.batch_id, live.place, again.place
FROM samples AS live JOIN samples AS again ON again.experience_id = live.experience_id
WHERE live.side = 'live' AND again.side = 'replay' ORDER BY live.experience_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """One sample that is not as it was."""

    what: What
    """What became of it."""
    experience_id: str
    """The sample."""
    scenario: str
    """Its scenario."""
    receipts: tuple[str, ...]
    """Its calls."""
    why: str
    """The fold's reason on the side where it is missing, or the fields that differ."""
    live_batch: str | None
    """Where it was trained."""
    replay_batch: str | None
    """Where it would have been."""


class Comparison:
    """Both sides of a comparison; used inside `with`."""

    def __init__(self, path: Path) -> None:
        """Hold everything in a new file."""
        self._database = sqlite3.connect(path)
        self._database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def take(self, side: Side, events: Iterable[TrainingSample | OutcomeSettled]) -> None:
        """Take in what one side said; the latest word about a call counts."""
        for event in events:
            if isinstance(event, TrainingSample):
                self._take_sample(side, event)
            else:
                reason = event.state.value if event.reason is None else event.reason.value
                self._database.execute(
                    "INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?)", (side, event.receipt, reason)
                )

    def take_experiences(self, side: Side, events: Iterable[ExperienceAssembled]) -> None:
        """Take in what one side learned from sessions."""
        rows = ((side, each.experience_id, _digest(digests_of(each))) for each in events)
        self._database.executemany("INSERT OR REPLACE INTO made VALUES (?, ?, ?)", rows)

    def experiences(self) -> dict[str, int]:
        """Count the experiences of both sides, and those that are the same."""
        live, again, same = self._database.execute(_MADE).fetchone()
        return {"recorded": live or 0, "recomputed": again or 0, "same": same or 0}

    def _take_sample(self, side: Side, event: TrainingSample) -> None:
        made = event.experience
        row = (
            side,
            made.experience_id,
            event.scenario,
            event.batch_id,
            event.index,
            digests_of(made),
            json.dumps(made.receipts),
        )
        self._database.execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._database.executemany(
            "INSERT OR REPLACE INTO calls VALUES (?, ?, ?)",
            [(side, receipt, made.experience_id) for receipt in made.receipts],
        )

    def num_samples(self, side: Side) -> int:
        """Count the samples of a side."""
        query = "SELECT count(*) FROM samples WHERE side = ?"
        return int(self._database.execute(query, (side,)).fetchone()[0])

    def differing(self) -> Iterator[Differing]:
        """Give every sample that is not as it was, by kind and id."""
        yield from self._alone("appears", here="replay", there="live")
        yield from self._alone("vanishes", here="live", there="replay")
        for row in self._database.execute(_BOTH):
            experience_id, scenario, receipts, live, again, *places = row
            changed = [
                name for at, name in enumerate(_FIELDS) if _digest_at(live, at) != _digest_at(again, at)
            ]
            live_batch, replay_batch, live_place, replay_place = places
            if not changed and (live_batch, live_place) == (replay_batch, replay_place):
                continue
            yield Differing(
                what="changes" if changed else "moves",
                experience_id=experience_id,
                scenario=scenario,
                receipts=tuple(json.loads(receipts)),
                why=", ".join(changed) if changed else f"place {live_place} to {replay_place}",
                live_batch=live_batch,
                replay_batch=replay_batch,
            )

    def _alone(self, what: What, *, here: Side, there: Side) -> Iterator[Differing]:
        for experience_id, scenario, batch_id, told in self._database.execute(_ALONE, (there, here)):
            receipts: tuple[str, ...] = tuple(json.loads(told))
            yield Differing(
                what=what,
                experience_id=experience_id,
                scenario=scenario,
                receipts=receipts,
                why=self._why_not(there, receipts),
                live_batch=batch_id if here == "live" else None,
                replay_batch=batch_id if here == "replay" else None,
            )

    def _why_not(self, side: Side, receipts: tuple[str, ...]) -> str:
        """Say what became of a sample's calls on the side where it is not."""
        marks = ", ".join("?" * len(receipts))
        others = self._database.execute(
            f"SELECT DISTINCT experience_id FROM calls WHERE side = ? AND receipt IN ({marks}) ORDER BY 1",
            (side, *receipts),
        ).fetchall()
        if others:
            return "its calls are in " + ", ".join(found for (found,) in others)
        reasons = self._database.execute(
            f"SELECT DISTINCT reason FROM outcomes WHERE side = ? AND receipt IN ({marks}) ORDER BY 1",
            (side, *receipts),
        ).fetchall()
        return ", ".join(found for (found,) in reasons) or "waiting"


def digests_of(experience: ExperienceAssembled) -> bytes:
    """Digest each field, in order."""
    return b"".join(_digest(getattr(experience, name)) for name in _FIELDS)


def _digest(value: object) -> bytes:
    data = value if isinstance(value, bytes) else repr(value).encode()
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _digest_at(digests: bytes, at: int) -> bytes:
    return digests[at * _DIGEST_BYTES : (at + 1) * _DIGEST_BYTES]


def counted(differing: Iterable[Differing]) -> Counter[str]:
    """Count by what became of them."""
    return Counter([each.what for each in differing])
