"""Shell: the outbox's table in SQLite: events on their way to Kafka, in the order in which they were kept.

Not a queue with waiting: gateway/outbox.py commits in groups, gateway/shipping.py empties the table lane
by lane. A lane holds whole partitions, so that order within a lane is order within each of them.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

from schemas.codec import encode
from schemas.errors import UnavailableError
from schemas.events import Event
from schemas.partitions import partition_of
from schemas.topics import REJECTED, key_of, topic_of

Durability = Literal["process", "disk"]
"""What an acknowledged event survives: the death of the process, or also the loss of power."""

NUM_LANES_MAX = 8
"""Producers that one gateway opens at most."""
ROW_OVERHEAD_BYTES = 64
"""What a row costs beside its key and value."""
BUSY_MS_MAX = 10_000
"""How long one connection waits for another one's lock."""
ROWS_PER_INSERT = 128
"""Rows that one statement keeps."""
_PAGE_BYTES = 8_192
_SYNCHRONOUS = {"process": "NORMAL", "disk": "FULL"}

_TABLES = """
CREATE TABLE IF NOT EXISTS rows(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, lane INTEGER NOT NULL, topic TEXT NOT NULL, key BLOB NOT NULL,
    size_bytes INTEGER NOT NULL, appended_at_us INTEGER NOT NULL, value BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS rows_by_lane ON rows(lane, seq);
CREATE TABLE IF NOT EXISTS dead(
    seq INTEGER PRIMARY KEY, topic TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
    appended_at_us INTEGER NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS facts(name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRow:
    """An event that is to be kept, in its bytes."""

    topic: str
    """Where it goes."""
    key: bytes
    """The record's key."""
    value: bytes
    """The encoded event, whole: large fields leave it when it is shipped."""

    @property
    def size_bytes(self) -> int:
        """What it counts against the limit."""
        return len(self.key) + len(self.value) + ROW_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An event that is kept until Kafka has it."""

    seq: int
    """Grows over the outbox's whole life."""
    topic: str
    """Where it goes."""
    key: bytes
    """The record's key."""
    value: bytes
    """The encoded event."""
    appended_at_us: int
    """When it was kept; microseconds UTC."""


def row_of(event: Event) -> NewRow:
    """Encode an event for the topic that it is first written to. Raises RejectedError."""
    return NewRow(topic=topic_of(type(event)), key=key_of(event), value=encode(event))


class OutboxRows:
    """One connection to the outbox's file. Every method blocks, and waits for the one before it.

    A thread may still be at work when the task that sent it is cancelled, so even closing takes its turn.
    """

    def __init__(self, path: Path, *, durability: Durability, num_partitions: int) -> None:
        """Open or create the file. Raises UnavailableError."""
        self._num_partitions = num_partitions
        self._lock = threading.RLock()
        with _translated():
            self._db = sqlite3.connect(
                path,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=2 * ROWS_PER_INSERT,
                timeout=BUSY_MS_MAX / 1000,
            )
            self._db.execute(f"PRAGMA page_size={_PAGE_BYTES}")
            self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={_SYNCHRONOUS[durability]}")
            self._db.execute("PRAGMA wal_autocheckpoint=0")

    def prepare(self) -> None:
        """Create what is missing, and sort the rows anew if the number of partitions changed."""
        with self._alone():
            self._db.executescript(_TABLES)
            self._db.execute("INSERT OR IGNORE INTO facts VALUES('outbox_id', ?)", (str(uuid4()),))
            known = self._db.execute("SELECT value FROM facts WHERE name='num_partitions'").fetchone()
            if known is not None and known[0] != str(self._num_partitions):
                self._sort_anew()
            self._db.execute(
                "INSERT OR REPLACE INTO facts VALUES('num_partitions', ?)", (str(self._num_partitions),)
            )

    def _sort_anew(self) -> None:
        keys = self._db.execute("SELECT DISTINCT key FROM rows").fetchall()
        with self.transaction():
            self._db.executemany(
                "UPDATE rows SET lane=? WHERE key=?", [(self.lane_of(key), key) for (key,) in keys]
            )

    def lane_of(self, key: bytes) -> int:
        """Say which sender carries a key: all records of a partition go through one."""
        return partition_of(key, self._num_partitions) % NUM_LANES_MAX

    @property
    def num_lanes(self) -> int:
        """How many senders there are."""
        return min(self._num_partitions, NUM_LANES_MAX)

    @property
    def outbox_id(self) -> str:
        """Name this file among all outboxes."""
        with self._alone():
            return str(self._db.execute("SELECT value FROM facts WHERE name='outbox_id'").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all that happens inside, or nothing of it."""
        with self._alone():
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:  # commits, or rolls back when something is raised
                yield

    def insert(self, rows: Sequence[NewRow], *, now_us: int) -> None:
        """Keep rows in this order."""
        # One statement a chunk: a thread that runs SQLite gives the interpreter up and waits for it again
        # at every statement, up to the switch interval while the event loop is busy.
        for start in range(0, len(rows), ROWS_PER_INSERT):
            chunk = rows[start : start + ROWS_PER_INSERT]
            values = [
                value
                for row in chunk
                for value in (self.lane_of(row.key), row.topic, row.key, row.size_bytes, now_us, row.value)
            ]
            with self._alone():
                self._db.execute(
                    "INSERT INTO rows(lane, topic, key, size_bytes, appended_at_us, value) VALUES "
                    + ",".join(["(?,?,?,?,?,?)"] * len(chunk)),
                    values,
                )

    def read(self, lane: int, *, num_rows_max: int, bytes_max: int) -> tuple[Row, ...]:
        """Read the lowest rows of a lane: at least one if there is any, then up to both limits."""
        rows: list[Row] = []
        size_bytes = 0
        with self._alone():
            found = self._db.execute(
                "SELECT seq, topic, key, value, appended_at_us FROM rows WHERE lane=? ORDER BY seq LIMIT ?",
                (lane, num_rows_max),
            )
            for seq, topic, key, value, appended_at_us in found:
                size_bytes += len(value)
                if rows and size_bytes > bytes_max:
                    break
                rows.append(Row(seq=seq, topic=topic, key=key, value=value, appended_at_us=appended_at_us))
            found.close()
        return tuple(rows)

    def delete_through(self, lane: int, seq: int) -> tuple[int, int]:
        """Forget a lane's rows up to one; says how many rows and bytes went."""
        with self._alone():
            gone = self._db.execute(
                "DELETE FROM rows WHERE lane=? AND seq<=? RETURNING size_bytes", (lane, seq)
            ).fetchall()
        return len(gone), sum(size for (size,) in gone)

    def oldest(self, *, above: Sequence[int], bytes_min: int) -> tuple[Row, ...]:
        """Find the oldest rows that free this much, leaving what senders hold: lane's rows up to `above`.

        What tells of earlier refusals goes only when nothing else is left.
        """
        freed_bytes = 0
        rows: list[Row] = []
        for comparison in ("topic<>?", "topic=?"):
            with self._alone():
                found = self._db.execute(
                    "SELECT seq, lane, topic, key, appended_at_us, size_bytes FROM rows "
                    f"WHERE {comparison} ORDER BY seq",
                    (REJECTED,),
                )
                for seq, lane, topic, key, appended_at_us, size_bytes in found:
                    if freed_bytes >= bytes_min:
                        break
                    if seq > above[lane]:
                        rows.append(
                            Row(seq=seq, topic=topic, key=key, value=b"", appended_at_us=appended_at_us)
                        )
                        freed_bytes += size_bytes
                found.close()
        return tuple(rows)

    def delete(self, rows: Sequence[Row]) -> int:
        """Forget rows; says how many bytes went."""
        with self._alone():
            sizes = [
                self._db.execute("DELETE FROM rows WHERE seq=? RETURNING size_bytes", (row.seq,)).fetchone()
                for row in rows
            ]
        return sum(size[0] for size in sizes if size is not None)

    def bury(self, row: Row, *, reason: str, detail: str) -> int:
        """Move a row that Kafka will never take out of the line; says how many bytes left it."""
        with self._alone():
            self._db.execute(
                "INSERT OR REPLACE INTO dead VALUES(?,?,?,?,?,?,?)",
                (row.seq, row.topic, row.key, row.value, row.appended_at_us, reason, detail),
            )
        return self.delete((row,))

    def waiting(self, topic: str, key: bytes) -> tuple[bytes, ...]:
        """Give the values under a key that Kafka does not have yet, in order."""
        with self._alone():
            found = self._db.execute(
                "SELECT value FROM rows WHERE lane=? AND topic=? AND key=? ORDER BY seq",
                (self.lane_of(key), topic, key),
            ).fetchall()
        return tuple(value for (value,) in found)

    def totals(self) -> tuple[int, int]:
        """Count rows and bytes, by reading the whole table's rows."""
        with self._alone():
            num_rows, size_bytes = self._db.execute(
                "SELECT count(*), coalesce(sum(size_bytes), 0) FROM rows"
            ).fetchone()
        return int(num_rows), int(size_bytes)

    def num_dead(self) -> int:
        """Count the rows that Kafka refused for good."""
        with self._alone():
            return int(self._db.execute("SELECT count(*) FROM dead").fetchone()[0])

    def oldest_at_us(self) -> int | None:
        """Say when the oldest row was kept; None when there is none. Microseconds UTC."""
        with self._alone():
            found = self._db.execute("SELECT appended_at_us FROM rows ORDER BY seq LIMIT 1").fetchone()
        return None if found is None else int(found[0])

    def checkpoint(self, mode: Literal["PASSIVE", "RESTART", "TRUNCATE"]) -> int:
        """Move the journal into the file; says how many bytes of journal remain to be moved.

        `PASSIVE` stops nobody; the other two hold writers back until they are done.
        """
        with self._alone():
            _, in_journal, moved = self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return int(max(0, in_journal - moved)) * _PAGE_BYTES

    def shrink(self) -> None:
        """Give freed pages back to the file system."""
        with self._alone():
            self._db.execute("PRAGMA incremental_vacuum").fetchall()

    def close(self) -> None:
        """Close the connection; whoever comes later is told that it is unusable."""
        with self._alone():
            self._db.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock, _translated():
            yield


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise UnavailableError(
            f"expected the outbox's file to be usable, got {error}: see to the disk of reef.state_dir",
            reason="outbox_unusable",
        ) from error
