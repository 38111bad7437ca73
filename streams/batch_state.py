"""Pure: the batch fold's memory: what waits, by scenario and in log order; heads, lines and progress.

Everything beside the entries is derived from them. A step changes it in place; its journal undoes a failed
one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.ids import CandidateId, ExperienceId, ScenarioName
from schemas.recipe import Pending
from streams.batch_entries import (
    ERASED,
    HEAD,
    HELD,
    NODE,
    PROGRESS,
    SAMPLE,
    SCENARIO,
    TIME,
    Erased,
    Head,
    Held,
    Progress,
    Sample,
    Stage,
    entry_of,
    pack,
    unpack,
)
from streams.deadlines import Deadlines
from streams.journal import Journal
from streams.lineage import Node
from streams.scenario import LoadRecipe, Scenario, pack_scenario, unpack_scenario


@dataclass(slots=True)
class Line:
    """What is derived of one scenario, for sealing: parallel lists in log order."""

    offsets: list[int] = field(default_factory=list)
    """Of all that wait."""
    ids: list[ExperienceId] = field(default_factory=list)
    """Of all that wait."""
    ready_offsets: list[int] = field(default_factory=list)
    """Of what a recipe may choose."""
    ready: list[Pending] = field(default_factory=list)
    """What a recipe may choose."""
    nodes: dict[int, Node] = field(default_factory=dict)
    """Releases by number."""


class BatchState:
    """What the batch fold remembers of one partition."""

    def __init__(self, *, load_recipe: LoadRecipe) -> None:
        """Start empty."""
        self.load_recipe = load_recipe
        self.now_us = 0
        self.journal: Journal[Any] = Journal(self._put)
        self._entries: dict[str, dict[str, Any]] = {
            kind: {} for kind in (SAMPLE, HEAD, PROGRESS, NODE, HELD, ERASED, SCENARIO)
        }
        self._lines: dict[str, Line] = {}
        self.unjudged: set[ScenarioName] = set()
        """Scenarios whose waiting experiences are being judged again."""
        self._deadlines = {SAMPLE: Deadlines(self._placed_sample), ERASED: Deadlines(self._placed_erased)}

    # ---- entries -------------------------------------------------------------------------------------------

    def sample(self, experience_id: ExperienceId) -> Sample | None:
        """Find an experience."""
        return self._entries[SAMPLE].get(experience_id)

    def put_sample(self, experience_id: ExperienceId, sample: Sample | None) -> None:
        """Change an experience; None removes it."""
        self._change(SAMPLE, experience_id, sample)

    def scenario(self, name: ScenarioName) -> Scenario | None:
        """Give a scenario's configuration; None before it came."""
        return self._entries[SCENARIO].get(name)

    def put_scenario(self, scenario: Scenario) -> None:
        """Change a scenario's configuration."""
        self._change(SCENARIO, scenario.name, scenario)

    def head(self, name: ScenarioName) -> Head | None:
        """Give the head of a scenario's chain; None before release 0."""
        return self._entries[HEAD].get(name)

    def put_head(self, name: ScenarioName, head: Head) -> None:
        """Move the head."""
        self._change(HEAD, name, head)

    def progress(self, name: ScenarioName) -> Progress:
        """Tell how far a scenario's batches are."""
        return self._entries[PROGRESS].get(name) or Progress()

    def put_progress(self, name: ScenarioName, progress: Progress) -> None:
        """Change how far a scenario's batches are."""
        self._change(PROGRESS, name, progress)

    def nodes(self, name: ScenarioName) -> Mapping[int, Node]:
        """Give the releases of a scenario by number."""
        return self._line(name).nodes

    def put_node(self, name: ScenarioName, seq: int, node: Node | None) -> None:
        """Place a release; None forgets it."""
        self._change(NODE, f"{name}/{seq}", node)

    def held(self, name: ScenarioName, candidate_id: CandidateId | None) -> Held | None:
        """Find a held candidate."""
        return self._entries[HELD].get(f"{name}/{candidate_id}")

    def put_held(self, name: ScenarioName, candidate_id: CandidateId, held: Held | None) -> None:
        """Remember a held candidate; None forgets it."""
        self._change(HELD, f"{name}/{candidate_id}", held)

    def forget_oldest_held(self, name: ScenarioName, num_max: int) -> None:
        """Keep the newest held candidates of a scenario."""
        held = [(each.offset, key) for key, each in self._entries[HELD].items() if key.startswith(f"{name}/")]
        for _, key in sorted(held)[: max(0, len(held) - num_max)]:
            self._change(HELD, key, None)

    def is_erased(self, name: str) -> bool:
        """Whether a call or a session must not be learned from."""
        return name in self._entries[ERASED]

    def put_erased(self, name: str, erased: Erased | None) -> None:
        """Remember that a call or a session must not be learned from; None ends it."""
        self._change(ERASED, name, erased)

    def advance(self, time_us: int) -> int:
        """Move the partition's time on, never back, and give it."""
        if time_us > self.now_us:
            self.journal.change(TIME, "", self.now_us, time_us)
        return self.now_us

    # ---- what waits ----------------------------------------------------------------------------------------

    def num_waiting(self, name: ScenarioName) -> int:
        """Count the experiences of a scenario that wait."""
        return len(self._line(name).ids)

    def waiting(
        self, name: ScenarioName, *, after_offset: int = -1, limit: int | None = None
    ) -> list[ExperienceId]:
        """List the experiences of a scenario that wait, in log order."""
        line = self._line(name)
        start = bisect_right(line.offsets, after_offset)
        return line.ids[start : None if limit is None else start + limit]

    def ready(self, name: ScenarioName) -> list[Pending]:
        """List what a recipe may choose: rewarded, and sampled no later than the head. Not to be changed."""
        return self._line(name).ready

    def due(self, kind: str, limit: int) -> list[str]:
        """List what has fallen due."""
        return [key for _, _, key in self._deadlines[kind].due(self.now_us, limit)]

    def earliest_deadline_us(self) -> int | None:
        """Give the time from which a tick would change something; None when nothing waits."""
        if self.unjudged:
            return self.now_us
        found = [deadlines.earliest_us() for deadlines in self._deadlines.values()]
        return min((at for at in found if at is not None), default=None)

    # ---- changes -------------------------------------------------------------------------------------------

    def load(self, key: bytes, value: bytes) -> None:
        """Take in one entry of the state topic. Raises ValueError on an entry of another version."""
        kind, name = chr(key[0]), key[1:].decode()
        self._put(kind, name, self._read(kind, name, value))

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Give the entries changed since the last call, by key; None where one is gone."""
        return {
            (kind + name).encode(): self._written(kind, name) for kind, name in self.journal.take_changed()
        }

    def _read(self, kind: str, name: str, value: bytes) -> Any:
        if kind == SCENARIO:
            return unpack_scenario(ScenarioName(name), value, self.load_recipe)
        return entry_of(kind, unpack(value))

    def _written(self, kind: str, name: str) -> bytes | None:
        if kind == TIME:
            return pack((self.now_us,))
        entry = self._entries[kind].get(name)
        if entry is None:
            return None
        return pack_scenario(entry) if kind == SCENARIO else pack(entry)

    def _change(self, kind: str, name: str, entry: Any) -> None:
        self.journal.change(kind, name, self._entries[kind].get(name), entry)

    def _put(self, kind: str, name: str, entry: Any) -> None:
        if kind == TIME:
            self.now_us = entry or 0
            return
        entries = self._entries[kind]
        old = entries.get(name)
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
        if kind == SAMPLE:
            self._index_sample(ExperienceId(name), old, entry)
        elif kind == ERASED and entry is not None:
            self._deadlines[ERASED].put(name, entry.deadline_us, entry.offset)
        elif kind == NODE:
            self._index_node(name, entry)
        elif kind == HEAD:
            self._index_ready(name)
        elif kind == PROGRESS:
            self._index_progress(ScenarioName(name), entry)

    def _line(self, name: str) -> Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line()
        return line

    def _index_progress(self, name: ScenarioName, progress: Progress | None) -> None:
        if progress is not None and progress.judged_offset < progress.judge_until_offset:
            self.unjudged.add(name)
        else:
            self.unjudged.discard(name)

    def _index_node(self, name: str, node: Node | None) -> None:
        scenario, _, seq = name.rpartition("/")
        if node is None:
            self._line(scenario).nodes.pop(int(seq), None)
        else:
            self._line(scenario).nodes[int(seq)] = node

    def _index_sample(self, experience_id: ExperienceId, old: Sample | None, new: Sample | None) -> None:
        if new is not None and (old is None or old.deadline_us != new.deadline_us):
            self._deadlines[SAMPLE].put(experience_id, new.deadline_us, new.offset)
        if old is not None and old.stage is Stage.WAITING:
            line = self._line(old.scenario)
            _take_out(line.offsets, line.ids, old.offset)
            _take_out(line.ready_offsets, line.ready, old.offset)
        if new is not None and new.stage is Stage.WAITING:
            line = self._line(new.scenario)
            _insert(line.offsets, line.ids, new.offset, experience_id)
            self._index_if_ready(line, experience_id, new)

    def _index_if_ready(self, line: Line, experience_id: ExperienceId, sample: Sample) -> None:
        head = self._entries[HEAD].get(sample.scenario)
        pending = sample.pending(experience_id)
        if head is not None and pending is not None and sample.release_seq_last <= head.release_seq:
            _insert(line.ready_offsets, line.ready, sample.offset, pending)

    def _index_ready(self, scenario: str) -> None:
        """Look again at what waits, since the head moved."""
        line = self._line(scenario)
        line.ready_offsets.clear()
        line.ready.clear()
        for experience_id in line.ids:
            self._index_if_ready(line, experience_id, self._entries[SAMPLE][experience_id])

    def _placed_sample(self, key: str) -> tuple[int, int] | None:
        sample: Sample | None = self._entries[SAMPLE].get(key)
        return None if sample is None else (sample.deadline_us, sample.offset)

    def _placed_erased(self, key: str) -> tuple[int, int] | None:
        erased: Erased | None = self._entries[ERASED].get(key)
        return None if erased is None else (erased.deadline_us, erased.offset)


def _insert(offsets: list[int], values: list[Any], offset: int, value: Any) -> None:
    at = bisect_left(offsets, offset)
    offsets.insert(at, offset)
    values.insert(at, value)


def _take_out(offsets: list[int], values: list[Any], offset: int) -> None:
    at = bisect_left(offsets, offset)
    if at < len(offsets) and offsets[at] == offset:
        del offsets[at]
        del values[at]
