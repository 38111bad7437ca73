"""Pure: the session fold's memory: entries by key, found by route, by report and by deadline.

Everything beside the entries is derived from them, so a state loaded entry by entry, in any order, answers as
the one that wrote them. A step changes it in place, since a million entries are not copied for an event: its
journal undoes the changes when the step fails.
"""

from collections.abc import Mapping
from struct import Struct

from schemas.ids import ExperienceId, Receipt, ScenarioName, route_of
from streams.deadlines import Deadlines, Due
from streams.entries import (
    VERSION,
    Call,
    CallStatus,
    Experience,
    Forgotten,
    Report,
    pack_call,
    pack_experience,
    pack_forgotten,
    pack_report,
    scenario_digest,
    scenario_of_call,
    unpack_call,
    unpack_experience,
    unpack_report,
)
from streams.journal import Journal
from streams.report_index import ReportIndex
from streams.routes import Routes
from streams.scenario import LoadRecipe, Scenario, pack_scenario, unpack_scenario

_TIME = Struct("<Bq")
CALL, REPORT, EXPERIENCE, FORGOTTEN, SCENARIO, TIME = "c", "r", "x", "f", "s", "t"
_PLACES = {
    CALL: Struct("<4xQ8xq"),
    REPORT: Struct("<4xQq"),
    EXPERIENCE: Struct("<xQq"),
    FORGOTTEN: Struct("<xQq"),
}
_PENDING = bytes([VERSION, CallStatus.PENDING])


class _Table:
    """Entries of one kind as bytes, with their deadlines."""

    __slots__ = ("_place", "deadlines", "entries")

    def __init__(self, place: Struct) -> None:
        self._place = place
        self.entries: dict[str, bytes] = {}
        self.deadlines = Deadlines(self.placed)

    def placed(self, key: str) -> tuple[int, int] | None:
        data = self.entries.get(key)
        if data is None:
            return None
        offset, deadline_us = self._place.unpack_from(data)
        return deadline_us, offset

    def put(self, key: str, data: bytes | None, old: bytes | None) -> None:
        if data is None:
            self.entries.pop(key, None)
            return
        self.entries[key] = data
        offset, deadline_us = self._place.unpack_from(data)
        if old is None or self._place.unpack_from(old) != (offset, deadline_us):
            self.deadlines.put(key, deadline_us, offset)


class SessionState:
    """What the session fold remembers of one partition."""

    def __init__(self, *, partition: int, num_partitions: int, load_recipe: LoadRecipe) -> None:
        """Start empty. `num_partitions` is the topic's, fixed when it was made."""
        self.partition = partition
        self.num_partitions = num_partitions
        self.load_recipe = load_recipe
        self.now_us = 0
        self.scenarios: dict[ScenarioName, Scenario | None] = {}
        self._names: dict[bytes, ScenarioName] = {}
        self._tables = {kind: _Table(place) for kind, place in _PLACES.items()}
        self._calls = self._tables[CALL].entries
        self._reports = self._tables[REPORT].entries
        self.routes = Routes(self._offset_of_waiting)
        self.reports = ReportIndex()
        self._imported: dict[tuple[bytes, str], dict[Receipt, None]] = {}
        self._swept: list[Due] | None = None
        self.journal: Journal[bytes] = Journal(self._put)

    # ---- entries -------------------------------------------------------------------------------------------

    def call(self, receipt: Receipt) -> Call | None:
        """Find a call of the window."""
        data = self._calls.get(receipt)
        return None if data is None else unpack_call(data)

    def has_call(self, receipt: Receipt) -> bool:
        """Whether the window knows the call."""
        return receipt in self._calls

    def imported(self, scenario: ScenarioName, imported_id: str) -> Receipt | None:
        """Find the receipt of an imported call by the client's own id: the first of several."""
        return min(self._imported.get((scenario_digest(scenario), imported_id), ()), default=None)

    def is_call_of(self, scenario: ScenarioName, receipt: Receipt) -> bool:
        """Whether the window knows the call, under this scenario."""
        data = self._calls.get(receipt)
        return data is not None and scenario_of_call(data) == scenario_digest(scenario)

    def put_call(self, receipt: Receipt, call: Call | None) -> None:
        """Change a call's entry; None removes it."""
        self._change(CALL, receipt, None if call is None else pack_call(call))

    def report(self, key: str) -> Report | None:
        """Find a report of the window."""
        data = self._reports.get(key)
        return None if data is None else unpack_report(data)

    def put_report(self, key: str, report: Report | None) -> None:
        """Change a report's entry; None removes it."""
        self._change(REPORT, key, None if report is None else pack_report(report))

    def experience(self, experience_id: ExperienceId) -> Experience | None:
        """Find an experience that corrections may reach."""
        data = self._tables[EXPERIENCE].entries.get(experience_id)
        return None if data is None else unpack_experience(data)

    def put_experience(self, experience_id: ExperienceId, experience: Experience | None) -> None:
        """Change an experience's entry; None removes it."""
        self._change(EXPERIENCE, experience_id, None if experience is None else pack_experience(experience))

    def is_forgotten(self, name: str) -> bool:
        """Whether a call, or a session by its route, must not be learned from."""
        return name in self._tables[FORGOTTEN].entries

    def put_forgotten(self, name: str, forgotten: Forgotten | None) -> None:
        """Remember that a call or a session must not be learned from; None ends it."""
        self._change(FORGOTTEN, name, None if forgotten is None else pack_forgotten(forgotten))

    def remove(self, kind: str, name: str) -> None:
        """Remove an entry that has served."""
        self._change(kind, name, None)

    def meet(self, name: ScenarioName) -> Scenario | None:
        """Give a scenario's configuration, None before it came; its name is remembered from here on."""
        if name not in self.scenarios:
            self._change(SCENARIO, name, pack_scenario(None))
        return self.scenarios[name]

    def put_scenario(self, scenario: Scenario) -> None:
        """Change a scenario's configuration."""
        self._change(SCENARIO, scenario.name, pack_scenario(scenario))

    def name_of(self, digest: bytes) -> ScenarioName:
        """Give the scenario's name that a call's entry keeps as a digest."""
        return self._names[digest]

    def advance(self, time_us: int) -> int:
        """Move the partition's time on, never back, and give it."""
        if time_us > self.now_us:
            self._change(TIME, "", _TIME.pack(VERSION, time_us))
        return self.now_us

    # ---- what is due ---------------------------------------------------------------------------------------

    def due(self, kind: str, limit: int) -> list[Due]:
        """List what has fallen due, first those of retired scenarios."""
        if kind == CALL and (swept := self._sweep(limit)):
            return swept
        return self._tables[kind].deadlines.due(self.now_us, limit)

    def earliest_deadline_us(self) -> int | None:
        """Give the time from which a tick would change something; None when nothing waits."""
        if self._sweep(1):
            return self.now_us
        found = [table.deadlines.earliest_us() for table in self._tables.values()]
        return min((deadline_us for deadline_us in found if deadline_us is not None), default=None)

    def _sweep(self, limit: int) -> list[Due]:
        """Pending calls of retired scenarios; looked for when one retires, or after a load."""
        if self._swept is None:
            retired = {name for name, scenario in self.scenarios.items() if scenario and scenario.is_retired}
            digests = {scenario_digest(name) for name in retired}
            self._swept = self._pending_of(digests) if digests else []
        found: list[Due] = []
        while self._swept and len(found) < limit:
            due = self._swept.pop()
            if self._offset_of_waiting(Receipt(due[2])) is not None:
                found.append(due)
        self._swept.extend(reversed(found))
        return found

    def _pending_of(self, digests: set[bytes]) -> list[Due]:
        found: list[Due] = []
        for receipt, data in self._calls.items():
            if data.startswith(_PENDING) and unpack_call(data).scenario in digests:
                found.append((*_placed(self._tables[CALL], receipt), receipt))
        return sorted(found, reverse=True)

    def _offset_of_waiting(self, receipt: Receipt) -> int | None:
        data = self._calls.get(receipt)
        if data is None or not data.startswith(_PENDING):
            return None
        return int(_PLACES[CALL].unpack_from(data)[0])

    # ---- changes -------------------------------------------------------------------------------------------

    def load(self, key: bytes, value: bytes) -> None:
        """Take in one entry of the state topic. Raises ValueError on an entry of another version."""
        kind, name = chr(key[0]), key[1:].decode()
        if kind != SCENARIO and value[0] != VERSION:
            raise ValueError(
                f"expected a state entry of version {VERSION}, got {value[0]}: run reef streams --rebuild"
            )
        self._put(kind, name, value)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Give the entries changed since the last call, by key; None where one is gone."""
        changed = self.journal.take_changed()
        return {(kind + name).encode(): self._entry(kind, name) for kind, name in changed}

    def _entry(self, kind: str, name: str) -> bytes | None:
        if kind == TIME:
            return _TIME.pack(VERSION, self.now_us)
        if kind == SCENARIO:
            known = ScenarioName(name)
            return pack_scenario(self.scenarios[known]) if known in self.scenarios else None
        return self._tables[kind].entries.get(name)

    def _change(self, kind: str, name: str, data: bytes | None) -> None:
        self.journal.change(kind, name, self._entry(kind, name), data)

    def _put(self, kind: str, name: str, data: bytes | None) -> None:
        if kind == TIME:
            self.now_us = 0 if data is None else _TIME.unpack(data)[1]
        elif kind == SCENARIO:
            self._put_scenario(ScenarioName(name), data)
        else:
            table = self._tables[kind]
            old = table.entries.get(name)
            table.put(name, data, old)
            if kind == CALL:
                self._index_call(Receipt(name), old, data)
            elif kind == REPORT:
                self.reports.update(name, old, data)

    def _put_scenario(self, name: ScenarioName, data: bytes | None) -> None:
        self._swept = None
        if data is None:
            self.scenarios.pop(name, None)
            return
        self._names[scenario_digest(name)] = name
        self.scenarios[name] = unpack_scenario(name, data, self.load_recipe)

    def _index_call(self, receipt: Receipt, old: bytes | None, new: bytes | None) -> None:
        was_pending = old is not None and old.startswith(_PENDING)
        is_pending = new is not None and new.startswith(_PENDING)
        if is_pending and not was_pending:
            self.routes.add(route_of(receipt), receipt)
        elif was_pending and not is_pending:
            self.routes.remove(route_of(receipt), receipt)
        if old is None and new is not None:
            self._index_imported(receipt, unpack_call(new), is_known=True)
        elif new is None and old is not None:
            self._index_imported(receipt, unpack_call(old), is_known=False)

    def _index_imported(self, receipt: Receipt, call: Call, *, is_known: bool) -> None:
        if not call.imported_id:
            return
        receipts = self._imported.setdefault((call.scenario, call.imported_id), {})
        if is_known:
            receipts[receipt] = None
            return
        receipts.pop(receipt, None)
        if not receipts:
            del self._imported[call.scenario, call.imported_id]


def _placed(table: _Table, key: str) -> tuple[int, int]:
    placed = table.placed(key)
    assert placed is not None, key
    return placed
