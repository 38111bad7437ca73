"""Shell: a replay's training topic as the log of a trainer that nobody waits for.

`reef trainer --from-replay` runs it. The first batch starts from the base that it names, every later one from
what the batch before it gave: the recorded releases are another run's. What would be announced stands in a
file; Kafka is only read.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

from schemas.artifacts import read_manifest
from schemas.events import CandidateTrained
from schemas.ids import Sha256
from trainers.batch import Batch
from trainers.cursor import Cursor
from trainers.disk import unwritable
from trainers.export import FOLDERS
from trainers.loop import Announcement
from trainers.state import State

RESULTS = "results.jsonl"


class ReplayedLog:
    """The batches of a replay, from a cursor on its topic up to the end as it was."""

    def __init__(self, cursor: Cursor, folder: Path, state: State, *, end: int) -> None:
        """Go on behind `state`; `end` is the offset behind the topic's last record."""
        self._cursor, self._end = cursor, end
        self._exports, self._results = folder / FOLDERS, folder / RESULTS
        self._held: Sha256 | None = state.held_content

    def is_over(self) -> bool:
        """Whether every batch was handed out."""
        return self._cursor.is_read_to(self._end)

    def next_batch(self, wait_s: float) -> Batch | None:
        """Give the next batch, on the weights that are held."""
        batch = self._cursor.next_batch(wait_s)
        if batch is None or self._held is None:
            return batch
        return replace(batch, sealed=replace(batch.sealed, base_content_sha256=self._held))

    def announce(self, event: Announcement) -> None:
        """Write an event into the file, once however often it is announced. Raises UnavailableError."""
        if isinstance(event, CandidateTrained) and event.is_publishable:
            manifest, _ = read_manifest(self._exports / event.candidate_id)
            self._held = manifest.content_sha256
        line = json.dumps(asdict(event))
        try:
            if line not in lines_of(self._results)[-1:]:
                with self._results.open("a") as file:
                    file.write(line + "\n")
        except OSError as error:
            raise unwritable(self._results, error) from error

    def is_announced(self, wait_s: float) -> bool:
        """Whether it stands: always."""
        return True


def lines_of(results: Path) -> list[str]:
    """Give what was announced so far, an event a line."""
    return results.read_text().splitlines() if results.exists() else []
