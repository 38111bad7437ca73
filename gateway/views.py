"""Shell: what this gateway remembers of the log, in a local SQLite file: calls, reports, outcomes, releases.

A cache: bounded, never synced, and made anew from the log when its tables change. It lags behind the log by
about a second; whoever needs the last word asks the outbox and the log's tail too (gateway/lookup.py).
"""

import asyncio
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from gateway.projection import Seen, Statement, report_id_row, report_rows, rows_of
from gateway.view_tables import BOUNDED, EMPTYING, TABLES, VERSION
from schemas.errors import UnavailableError
from schemas.events import FeedbackReported, ReportAccepted
from schemas.ids import ReportId, ScenarioName, Sha256
from schemas.records import Place
from schemas.topics import INTERACTIONS

FILE_NAME = "views.sqlite"
ROWS_MAX = 1_000_000
"""Of each table that grows with traffic; about 400 MB in all."""
PRUNE_EVERY = 10_000
"""Events between two looks at how large the tables are."""
NOTED_MAX = 100_000
"""Report ids accepted here that the file does not have yet."""

HELD_MAX = 1_000
"""Held candidates that one answer names."""
REPORTS_MAX = 1_000
"""Reports of a call, and calls of a report, that one answer names."""
TRAININGS_MAX = 10_000
"""Trainings that are looked through for one."""
SWAPS_MAX = 100
"""Swaps of one release that one answer names."""

Found = Mapping[str, Any]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenId:
    """An id that a report or an imported call has."""

    content_sha256: Sha256
    """Of what it names."""
    references: tuple[str, ...]
    """Calls that the report judged; of an imported call its receipt."""


class Views:
    """Tables over one file, used from the event loop; SQLite itself runs in threads, one call at a time.

    Several processes may have it open: the gateway, and its courier that reads most of the log.
    """

    def __init__(self, folder: Path, *, rows_max: int = ROWS_MAX) -> None:
        """Open the file, anew if its tables are of another version. Raises UnavailableError."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._rows_max = folder / FILE_NAME, rows_max
        self._lock = threading.Lock()
        self._noted: OrderedDict[tuple[str, str], TakenId] = OrderedDict()
        self._num_since_prune = 0
        with _translated():
            self._db = self._opened()
            if self._db.execute("PRAGMA user_version").fetchone()[0] not in (0, VERSION):
                self._begin_anew()
            self._db.executescript(TABLES)
            self._db.execute(f"PRAGMA user_version={VERSION}")

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")
        return db

    def _begin_anew(self) -> None:
        self._db.close()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(FILE_NAME + suffix).unlink(missing_ok=True)
        self._db = self._opened()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    async def forget(self, topics: Sequence[str]) -> None:
        """Forget what these topics told: the log is another one."""
        statements = [Statement(sql, ()) for topic in topics for sql in EMPTYING.get(topic, ())]
        unread = [Statement("DELETE FROM positions WHERE topic=?", (topic,)) for topic in topics]
        await self._run(lambda db: _commit(db, [*statements, *unread]))

    async def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return await asyncio.to_thread(self._locked, work)

    def _locked(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._lock, _translated():
            return work(self._db)

    # what comes in

    async def apply(self, seen: Sequence[Seen], positions: Mapping[Place, int]) -> None:
        """Take events in, with how far the log is read now, all or nothing."""
        statements = [statement for one in seen for statement in rows_of(one)]
        moved = [
            Statement("INSERT OR REPLACE INTO positions VALUES(?,?,?)", (*place, offset))
            for place, offset in positions.items()
        ]
        self._num_since_prune += len(seen)
        is_prune_due = self._num_since_prune >= PRUNE_EVERY
        self._num_since_prune = 0 if is_prune_due else self._num_since_prune
        pruning = self._pruning() if is_prune_due else []
        await self._run(lambda db: _commit(db, [*statements, *moved, *pruning]))

    def _pruning(self) -> list[Statement]:
        return [
            Statement(
                f"DELETE FROM {table} WHERE number <= (SELECT max(number) FROM {table}) - ?",
                (self._rows_max,),
            )
            for table in BOUNDED
        ]

    async def note(
        self, accepted: Sequence[ReportAccepted], reports: Sequence[FeedbackReported] = ()
    ) -> None:
        """Remember ids and reports that were taken here just now, before the log tells of them."""
        for event in accepted:
            key = (event.scenario, event.report_id)
            self._noted.setdefault(
                key, TakenId(content_sha256=event.content_sha256, references=event.references)
            )
        while len(self._noted) > NOTED_MAX:
            self._noted.popitem(last=False)
        await self._run(lambda db: _commit(db, _noted_rows(accepted, reports)))
        for event in accepted:
            self._noted.pop((event.scenario, event.report_id), None)

    # what is asked

    async def positions(self) -> Mapping[Place, int]:
        """Say how far each partition was read: the next offset."""
        rows = await self._run(lambda db: db.execute("SELECT * FROM positions").fetchall())
        return {Place(topic, partition): offset for topic, partition, offset in rows}

    async def taken(
        self, scenario: ScenarioName, report_ids: Sequence[ReportId]
    ) -> Mapping[ReportId, TakenId]:
        """Say which of these ids are taken, and by what."""
        found = {
            report_id: self._noted[scenario, report_id]
            for report_id in report_ids
            if (scenario, report_id) in self._noted
        }
        asked = [report_id for report_id in report_ids if report_id not in found]
        if asked:
            found |= await self._run(lambda db: _taken(db, scenario, asked))
        return found

    async def call(self, receipt: str) -> Found | None:
        """Give a call: scenario, partition, offset, and what is shown of it."""
        row = await self._one(
            "SELECT scenario, partition, offset, facts FROM calls WHERE receipt=?", (receipt,)
        )
        if row is None:
            return None
        scenario, partition, offset, facts = row
        return {"scenario": scenario, "partition": partition, "offset": offset, **orjson.loads(facts)}

    async def reports(self, receipt: str) -> list[Found]:
        """Give the reports about a call, in log order."""
        return await self._rows_of_reports("receipt=?", (receipt,))

    async def report(self, scenario: str, report_id: str) -> list[Found]:
        """Give a report once for each call that it judges; nothing when none of its parts was read."""
        return await self._rows_of_reports("scenario=? AND report_id=?", (scenario, report_id))

    async def _rows_of_reports(self, condition: str, values: Sequence[Any]) -> list[Found]:
        columns = "receipt, partition, offset, facts, refusal"
        sql = f"SELECT {columns} FROM reports WHERE {condition} ORDER BY number LIMIT ?"
        rows = await self._run(lambda db: db.execute(sql, (*values, REPORTS_MAX)).fetchall())
        return [
            {
                **orjson.loads(facts),
                "receipt": receipt,
                "place": _place(INTERACTIONS, partition, offset),
                "refusal": None if refusal is None else orjson.loads(refusal),
            }
            for receipt, partition, offset, facts, refusal in rows
        ]

    async def outcome(self, receipt: str) -> Found | None:
        """Give a call's outcome; None while it is pending."""
        return await self._fact("SELECT facts FROM outcomes WHERE receipt=?", (receipt,))

    async def batch_calls(self, batch_id: str, *, calls_max: int = -1) -> list[Found]:
        """Give the calls that were settled with a batch: receipt and outcome."""
        rows = await self._run(
            lambda db: db.execute(
                "SELECT receipt, facts FROM outcomes WHERE batch_id=? ORDER BY number LIMIT ?",
                (batch_id, calls_max),
            ).fetchall()
        )
        return [{"agent_record_id": receipt, **orjson.loads(facts)} for receipt, facts in rows]

    async def batch_named(self, name: str) -> Found | None:
        """Find a batch by its id or its candidate's: scenario and id; None while nothing of it has ended."""
        row = await self._one(
            "SELECT scenario, batch_id FROM trainings WHERE batch_id=?1 OR candidate_id=?1 "
            "UNION SELECT scenario, batch_id FROM failures WHERE batch_id=?1 "
            "UNION SELECT scenario, batch_id FROM outcomes WHERE batch_id=?1 LIMIT 1",
            (name,),
        )
        return None if row is None else {"scenario": row[0], "batch_id": row[1]}

    async def training(self, batch_id: str) -> Found | None:
        """Give what a batch was trained to; None when it was not."""
        return await self._fact("SELECT facts FROM trainings WHERE batch_id=?", (batch_id,))

    async def training_numbered(self, scenario: str, batch_seq: int) -> Found | None:
        """Give the training of a scenario's batch by its number, if it is one of the latest."""
        rows = await self._facts(
            "SELECT facts FROM trainings WHERE scenario=? ORDER BY number DESC LIMIT ?",
            (scenario, TRAININGS_MAX),
        )
        return next((row for row in rows if row["batch_seq"] == batch_seq), None)

    async def failure(self, batch_id: str) -> Found | None:
        """Give why a batch could not be trained; None when it could."""
        return await self._fact("SELECT facts FROM failures WHERE batch_id=?", (batch_id,))

    async def swaps(self, release_id: str) -> list[Found]:
        """Give the swaps that brought a release into engines, in log order."""
        return await self._facts(
            "SELECT facts FROM swaps WHERE release_id=? ORDER BY number LIMIT ?", (release_id, SWAPS_MAX)
        )

    async def releases(self, scenario: str) -> list[Found]:
        """Give the chain, newest first."""
        return await self._facts(
            "SELECT facts FROM releases WHERE scenario=? ORDER BY release_seq DESC", (scenario,)
        )

    async def head(self, scenario: str) -> Found | None:
        """Give the newest release; None before release 0."""
        return await self._fact(
            "SELECT facts FROM releases WHERE scenario=? ORDER BY release_seq DESC LIMIT 1", (scenario,)
        )

    async def candidate(self, candidate_id: str) -> Found | None:
        """Give a candidate's verdict."""
        row = await self._one(
            "SELECT scenario, verdict, facts FROM candidates WHERE candidate_id=?", (candidate_id,)
        )
        return None if row is None else {"scenario": row[0], "verdict": row[1], **orjson.loads(row[2])}

    async def metrics(self, scenario: str) -> Mapping[str, Mapping[str, float]]:
        """Give what was measured of each candidate: by its evaluation first, then by its training."""
        evaluated, trained = await self._run(lambda db: _measured(db, scenario))
        measured = {name: dict(orjson.loads(facts)["metrics"]) for name, facts in evaluated}
        for name, metrics in trained:
            measured[name] = orjson.loads(metrics) | measured.get(name, {})
        return measured

    async def held(self, scenario: str) -> list[Found]:
        """Give the candidates that were held, newest first, whether or not they were promoted since."""
        rows = await self._run(
            lambda db: db.execute(
                "SELECT candidate_id, facts FROM candidates WHERE scenario=? AND verdict='held' "
                "ORDER BY number DESC LIMIT ?",
                (scenario, HELD_MAX),
            ).fetchall()
        )
        return [{"candidate_id": candidate_id, **orjson.loads(facts)} for candidate_id, facts in rows]

    async def latest(self, scenario: str) -> Mapping[str, Found]:
        """Give the newest of each kind: `configured`, `trained`, `training_failed`, `swapped` and so on."""
        rows = await self._run(
            lambda db: db.execute("SELECT name, facts FROM latest WHERE scenario=?", (scenario,)).fetchall()
        )
        return {name: orjson.loads(facts) for name, facts in rows}

    async def configured(self) -> Mapping[str, Found]:
        """Give every scenario's configuration as the log has it."""
        rows = await self._run(
            lambda db: db.execute("SELECT scenario, facts FROM latest WHERE name='configured'").fetchall()
        )
        return {scenario: orjson.loads(facts) for scenario, facts in rows}

    async def outcomes_by_reason(self, scenario: str) -> Mapping[str, int]:
        """Count calls by what became of them: `trained`, or the reason of those dropped."""
        rows = await self._run(
            lambda db: db.execute(
                "SELECT coalesce(reason, state), count(*) FROM outcomes WHERE scenario=? GROUP BY 1",
                (scenario,),
            ).fetchall()
        )
        return dict(rows)

    async def num_pending(self, scenario: str) -> int:
        """Count the calls that have no outcome yet."""
        row = await self._one("SELECT count(*) FROM calls WHERE scenario=? AND is_settled=0", (scenario,))
        return 0 if row is None else int(row[0])

    async def command(self, command_id: str) -> Found | None:
        """Give a command that was asked for before, and its refusal if there was one."""
        row = await self._one(
            "SELECT requested_at_us, refusal FROM commands WHERE command_id=?", (command_id,)
        )
        if row is None:
            return None
        return {"requested_at_us": row[0], "refusal": None if row[1] is None else orjson.loads(row[1])}

    async def _one(self, sql: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = await self._run(lambda db: db.execute(sql, values).fetchone())
        return row

    async def _fact(self, sql: str, values: Sequence[Any]) -> Found | None:
        row = await self._one(sql, values)
        return None if row is None else orjson.loads(row[0])

    async def _facts(self, sql: str, values: Sequence[Any]) -> list[Found]:
        rows = await self._run(lambda db: db.execute(sql, values).fetchall())
        return [orjson.loads(row[0]) for row in rows]


def _noted_rows(accepted: Iterable[ReportAccepted], reports: Iterable[FeedbackReported]) -> list[Statement]:
    rows = [report_id_row(event) for event in accepted]
    return [*rows, *(row for event in reports for row in report_rows(event))]


def _commit(db: sqlite3.Connection, statements: Sequence[Statement]) -> None:
    db.execute("BEGIN IMMEDIATE")
    with db:  # commits, or rolls back when something is raised
        for statement in statements:
            db.execute(statement.sql, statement.values)


def _measured(db: sqlite3.Connection, scenario: str) -> tuple[list[Any], list[Any]]:
    return (
        db.execute("SELECT candidate_id, facts FROM candidates WHERE scenario=?", (scenario,)).fetchall(),
        db.execute("SELECT candidate_id, metrics FROM trainings WHERE scenario=?", (scenario,)).fetchall(),
    )


def _taken(
    db: sqlite3.Connection, scenario: ScenarioName, report_ids: Sequence[ReportId]
) -> dict[ReportId, TakenId]:
    found: dict[ReportId, TakenId] = {}
    for report_id in report_ids:
        row = db.execute(
            "SELECT content_sha256, facts FROM report_ids WHERE scenario=? AND report_id=?",
            (scenario, report_id),
        ).fetchone()
        if row is not None:
            found[report_id] = TakenId(
                content_sha256=Sha256(row[0]), references=tuple(orjson.loads(row[1])["references"])
            )
    return found


def _place(topic: str, partition: int | None, offset: int | None) -> Found | None:
    return None if offset is None else {"topic": topic, "partition": partition, "offset": offset}


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise UnavailableError(
            f"expected the views' file to be usable, got {error}: see to the disk of reef.state_dir",
            reason="views_unusable",
        ) from error
