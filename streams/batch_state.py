"""Pure: the batch fold's memory: what waits, by scenario and in log order; heads, lines and progress.

Everything beside the entries is derived from them. A step changes it in place; its journal undoes a failed
one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
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
from streams.lineage import Node
from streams.scenario import LoadRecipe, Scenario, pack_scenario, unpack_configured
from streams.table import Journal, Table


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
        self.journal = Journal()
        self.unjudged: set[ScenarioName] = set()
        """Scenarios whose waiting experiences are being judged again."""
        self._is_time_changed = False
        self._lines: dict[str, Line] = {}
        self._deadlines = Deadlines(self._placed)
        self._samples: Table[Sample] = self._table(SAMPLE, self._follow_sample)
        self._heads: Table[Head] = self._table(HEAD, self._follow_head)
        self._progress: Table[Progress] = self._table(PROGRESS, self._follow_progress)
        self._nodes: Table[Node] = self._table(NODE, self._follow_node)
        self._held: Table[Held] = self._table(HELD, _follow_nothing)
        self._erased: Table[Erased] = self._table(ERASED, self._follow_erased)
        self._scenarios: Table[Scenario] = Table(
            self.journal,
            pack=pack_scenario,
            unpack=lambda name, data: unpack_configured(ScenarioName(name), data, load_recipe),
            follow=_follow_nothing,
            rests_packed=False,
        )

    def _table(self, kind: str, follow: Callable[[str, Any, Any], None]) -> Table[Any]:
        return Table(
            self.journal,
            pack=pack,
            unpack=lambda _, data: entry_of(kind, unpack(data)),
            follow=follow,
            rests_packed=False,
        )

    # ---- entries -------------------------------------------------------------------------------------------

    def sample(self, experience_id: ExperienceId) -> Sample | None:
        """Find an experience."""
        return self._samples.get(experience_id)

    def put_sample(self, experience_id: ExperienceId, sample: Sample | None) -> None:
        """Change an experience; None removes it."""
        self._samples.put(experience_id, sample)

    def scenario(self, name: ScenarioName) -> Scenario | None:
        """Give a scenario's configuration; None before it came."""
        return self._scenarios.get(name)

    def put_scenario(self, scenario: Scenario) -> None:
        """Change a scenario's configuration."""
        self._scenarios.put(scenario.name, scenario)

    def head(self, name: ScenarioName) -> Head | None:
        """Give the head of a scenario's chain; None before release 0."""
        return self._heads.get(name)

    def put_head(self, name: ScenarioName, head: Head) -> None:
        """Move the head."""
        self._heads.put(name, head)

    def progress(self, name: ScenarioName) -> Progress:
        """Tell how far a scenario's batches are."""
        return self._progress.get(name) or Progress()

    def put_progress(self, name: ScenarioName, progress: Progress) -> None:
        """Change how far a scenario's batches are."""
        self._progress.put(name, progress)

    def nodes(self, name: ScenarioName) -> Mapping[int, Node]:
        """Give the releases of a scenario by number."""
        return self._line(name).nodes

    def put_node(self, name: ScenarioName, seq: int, node: Node | None) -> None:
        """Place a release; None forgets it."""
        self._nodes.put(f"{name}/{seq}", node)

    def held(self, name: ScenarioName, candidate_id: CandidateId | None) -> Held | None:
        """Find a held candidate."""
        return self._held.get(f"{name}/{candidate_id}")

    def put_held(self, name: ScenarioName, candidate_id: CandidateId, held: Held | None) -> None:
        """Remember a held candidate; None forgets it."""
        self._held.put(f"{name}/{candidate_id}", held)

    def forget_oldest_held(self, name: ScenarioName, num_max: int) -> None:
        """Keep the newest held candidates of a scenario."""
        keys = [key for key in self._held.entries if key.startswith(f"{name}/")]
        held = [(entry.offset, key) for key in keys if (entry := self._held.get(key)) is not None]
        for _, key in sorted(held)[: max(0, len(held) - num_max)]:
            self._held.put(key, None)

    def is_erased(self, name: str) -> bool:
        """Whether a call or a session must not be learned from."""
        return name in self._erased.entries

    def put_erased(self, name: str, erased: Erased | None) -> None:
        """Remember that a call or a session must not be learned from; None ends it."""
        self._erased.put(name, erased)

    def move_time(self, time_us: int) -> None:
        """Set the partition's time; a step that fails sets it back."""
        if time_us != self.now_us:
            self.now_us = time_us
            self._is_time_changed = True

    # ---- what waits ----------------------------------------------------------------------------------------

    def scenario_names(self) -> tuple[ScenarioName, ...]:
        """Name the scenarios whose configuration came."""
        return tuple([ScenarioName(name) for name in self._scenarios.entries])

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

    def due(self, limit: int) -> list[tuple[str, str]]:
        """List what has fallen due, by kind and key, in order."""
        return [(name[0], name[1:]) for _, _, name in self._deadlines.due(self.now_us, limit)]

    def num_pending(self) -> int:
        """Count the experiences that wait."""
        return sum(len(line.ids) for line in self._lines.values())

    def earliest_deadline_us(self) -> int | None:
        """Give the time from which a tick would change something; None when nothing waits."""
        return self.now_us if self.unjudged else self._deadlines.earliest_us()

    # ---- changes -------------------------------------------------------------------------------------------

    def load(self, key: bytes, value: bytes) -> None:
        """Take in one entry of the state topic. Raises ValueError on an entry of another version."""
        kind, name = chr(key[0]), key[1:].decode()
        if kind == TIME:
            self.now_us = unpack(value)[0]
        else:
            self._tables()[kind].load(name, value)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Give the entries changed since the last call, by key; None where one is gone."""
        found: dict[bytes, bytes | None] = {}
        for kind, table in self._tables().items():
            for name, data in table.take_changes():
                found[(kind + name).encode()] = data
        if self._is_time_changed:
            found[TIME.encode()] = pack((self.now_us,))
            self._is_time_changed = False
        return found

    def _tables(self) -> Mapping[str, Table[Any]]:
        return {
            SAMPLE: self._samples,
            HEAD: self._heads,
            PROGRESS: self._progress,
            NODE: self._nodes,
            HELD: self._held,
            ERASED: self._erased,
            SCENARIO: self._scenarios,
        }

    def _line(self, name: str) -> Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line()
        return line

    def _follow_progress(self, name: str, before: Progress | None, progress: Progress | None) -> None:
        if progress is not None and progress.judged_offset < progress.judge_until_offset:
            self.unjudged.add(ScenarioName(name))
        else:
            self.unjudged.discard(ScenarioName(name))

    def _follow_node(self, name: str, before: Node | None, node: Node | None) -> None:
        scenario, _, seq = name.rpartition("/")
        if node is None:
            self._line(scenario).nodes.pop(int(seq), None)
        else:
            self._line(scenario).nodes[int(seq)] = node

    def _follow_sample(self, name: str, before: Sample | None, sample: Sample | None) -> None:
        if sample is not None and (before is None or before.deadline_us != sample.deadline_us):
            self._deadlines.put(SAMPLE + name, sample.deadline_us, sample.offset)
        if before is not None and before.stage is Stage.WAITING:
            line = self._line(before.scenario)
            _take_out(line.offsets, line.ids, before.offset)
            _take_out(line.ready_offsets, line.ready, before.offset)
        if sample is not None and sample.stage is Stage.WAITING:
            line = self._line(sample.scenario)
            _insert(line.offsets, line.ids, sample.offset, ExperienceId(name))
            self._add_if_ready(line, ExperienceId(name), sample)

    def _add_if_ready(self, line: Line, experience_id: ExperienceId, sample: Sample) -> None:
        head = self._heads.get(sample.scenario)
        pending = sample.pending(experience_id)
        if head is not None and pending is not None and sample.release_seq_last <= head.release_seq:
            _insert(line.ready_offsets, line.ready, sample.offset, pending)

    def _follow_head(self, name: str, before: Head | None, head: Head | None) -> None:
        """Look again at what waits, since the head moved."""
        line = self._line(name)
        line.ready_offsets.clear()
        line.ready.clear()
        for experience_id in line.ids:
            sample = self._samples.get(experience_id)
            assert sample is not None, experience_id
            self._add_if_ready(line, experience_id, sample)

    def _follow_erased(self, name: str, before: Erased | None, erased: Erased | None) -> None:
        if erased is not None:
            self._deadlines.put(ERASED + name, erased.deadline_us, erased.offset)

    def _placed(self, name: str) -> tuple[int, int] | None:
        table = self._samples if name[0] == SAMPLE else self._erased
        entry = table.get(name[1:])
        return None if entry is None else (entry.deadline_us, entry.offset)


def _follow_nothing(_: str, __: object, ___: object) -> None:
    """Derive nothing from an entry."""


def _insert(offsets: list[int], values: list[Any], offset: int, value: Any) -> None:
    at = bisect_left(offsets, offset)
    offsets.insert(at, offset)
    values.insert(at, value)


def _take_out(offsets: list[int], values: list[Any], offset: int) -> None:
    at = bisect_left(offsets, offset)
    if at < len(offsets) and offsets[at] == offset:
        del offsets[at]
        del values[at]
