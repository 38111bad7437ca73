"""Pure: the session fold's memory: entries by key, found by route, by report and by deadline.

Everything beside the entries is derived from them, so a state loaded entry by entry, in any order, answers as
the one that wrote them. A step changes it in place, since a million entries are not copied for an event; its
journal undoes the changes when the step fails.
"""

from collections.abc import Iterable, Mapping
from struct import Struct

from schemas.ids import ExperienceId, Receipt, ScenarioName
from streams.deadlines import Deadlines, Due
from streams.entries import (
    VERSION,
    Call,
    Experience,
    Forgotten,
    Report,
    is_pending,
    pack_call,
    pack_experience,
    pack_forgotten,
    pack_report,
    place_of,
    scenario_digest,
    scenario_in,
    unpack_call,
    unpack_experience,
    unpack_forgotten,
    unpack_report,
)
from streams.receipts import route_in
from streams.report_index import ReportIndex
from streams.routes import Routes
from streams.scenario import LoadRecipe, Scenario, pack_scenario, unpack_scenario
from streams.table import Journal, Table

CALL, REPORT, EXPERIENCE, FORGOTTEN, SCENARIO, TIME = "c", "R", "X", "F", "S", "T"
"""Kinds of entry: the first letter of a key in the state topic. Deadlines leave out that of calls."""
_TIME = Struct("<Bq")


class SessionState:
    """What the session fold remembers of one partition."""

    def __init__(self, *, partition: int, num_partitions: int, load_recipe: LoadRecipe) -> None:
        """Start empty. `num_partitions` is the topic's, fixed when it was made."""
        self.partition = partition
        self.num_partitions = num_partitions
        self.load_recipe = load_recipe
        self.now_us = 0
        self.journal = Journal()
        self._deadlines = Deadlines(self._placed)
        self.routes = Routes(self._offset_of_waiting)
        self.report_index = ReportIndex()
        self.calls: Table[Call] = Table(
            self.journal, pack=pack_call, unpack=lambda _, data: unpack_call(data), follow=self._follow_call
        )
        self.reports: Table[Report] = Table(
            self.journal,
            pack=pack_report,
            unpack=lambda _, data: unpack_report(data),
            follow=self._follow_report,
        )
        self.experiences: Table[Experience] = Table(
            self.journal,
            pack=pack_experience,
            unpack=lambda _, data: unpack_experience(data),
            follow=self._follow_experience,
        )
        self.forgotten: Table[Forgotten] = Table(
            self.journal,
            pack=pack_forgotten,
            unpack=lambda _, data: unpack_forgotten(data),
            follow=self._follow_forgotten,
        )
        self._scenarios: Table[Scenario | str] = Table(
            self.journal,
            pack=lambda scenario: pack_scenario(scenario if isinstance(scenario, Scenario) else None),
            unpack=lambda name, data: unpack_scenario(ScenarioName(name), data, load_recipe) or name,
            follow=self._follow_scenario,
            rests_packed=False,
        )
        self._names: dict[bytes, ScenarioName] = {}
        self._imported: dict[tuple[bytes, str], dict[Receipt, None]] = {}
        self._swept: list[Due] | None = []
        self._is_time_changed = False

    # ---- entries -------------------------------------------------------------------------------------------

    def call(self, receipt: Receipt) -> Call | None:
        """Find a call of the window."""
        return self.calls.get(receipt)

    def is_call_of(self, scenario: ScenarioName, receipt: Receipt) -> bool:
        """Whether the window knows the call, under this scenario."""
        entry = self.calls.entries.get(receipt)
        return entry is not None and scenario_in(entry) == scenario_digest(scenario)

    def report(self, key: str) -> Report | None:
        """Find a report of the window."""
        return self.reports.get(key)

    def experience(self, experience_id: ExperienceId) -> Experience | None:
        """Find an experience that corrections may reach."""
        return self.experiences.get(experience_id)

    def imported(self, scenario: ScenarioName, imported_id: str) -> Receipt | None:
        """Find the receipt of an imported call by the client's own id: the first of several."""
        return min(self._imported.get((scenario_digest(scenario), imported_id), ()), default=None)

    def is_forgotten(self, name: str) -> bool:
        """Whether a call, or a session by its route, must not be learned from."""
        return name in self.forgotten.entries

    def scenario(self, name: ScenarioName) -> Scenario | None:
        """Give a scenario's configuration; None before it came."""
        found = self._scenarios.entries.get(name)
        return found if isinstance(found, Scenario) else None

    def meet(self, name: ScenarioName) -> Scenario | None:
        """Give a scenario's configuration; its name is remembered from here on."""
        found = self._scenarios.entries.get(name)
        if found is None:
            self._scenarios.put(name, str(name))
        return found if isinstance(found, Scenario) else None

    def put_scenario(self, scenario: Scenario) -> None:
        """Change a scenario's configuration."""
        self._scenarios.put(scenario.name, scenario)

    def name_of(self, digest: bytes) -> ScenarioName:
        """Give the scenario's name that a call's entry keeps as a digest."""
        return self._names[digest]

    def scenario_of(self, call: Call) -> Scenario | None:
        """Give the configuration of a call's scenario."""
        return self.scenario(self._names[call.scenario])

    def move_time(self, time_us: int) -> None:
        """Set the partition's time; a step that fails sets it back."""
        if time_us != self.now_us:
            self.now_us = time_us
            self._is_time_changed = True

    # ---- what is due ---------------------------------------------------------------------------------------

    def due(self, limit: int) -> list[tuple[str, str]]:
        """List what has fallen due, by kind and key: what a retired scenario leaves, then by deadline."""
        found = self._deadlines.due(self.now_us, limit)
        if self._swept != []:
            found = self._sweep(limit) or found
        if not found:
            return []
        return [(CALL, name) if name.startswith("rec_") else (name[0], name[1:]) for _, _, name in found]

    def num_pending(self) -> int:
        """Count the calls and reports that wait."""
        return self.routes.num_waiting + self.report_index.num_waiting

    def earliest_deadline_us(self) -> int | None:
        """Give the time from which a tick would change something; None when nothing waits."""
        return self.now_us if self._sweep(1) else self._deadlines.earliest_us()

    def _placed(self, name: str) -> tuple[int, int] | None:
        """Tell deadline and offset of an entry, by its name among the deadlines."""
        if name.startswith("rec_"):
            return place_of(self.calls.entries.get(name))
        key = name[1:]
        match name[0]:
            case "R":
                return place_of(self.reports.entries.get(key))
            case "X":
                return place_of(self.experiences.entries.get(key))
            case _:
                return place_of(self.forgotten.entries.get(key))

    def _sweep(self, limit: int) -> list[Due]:
        """List pending calls of retired scenarios; looked for when one retires, or after a load."""
        if self._swept is None:
            scenarios = [each for each in self._scenarios.entries.values() if isinstance(each, Scenario)]
            digests = {scenario_digest(each.name) for each in scenarios if each.is_retired}
            self._swept = self._pending_of(digests) if digests else []
        found: list[Due] = []
        while self._swept and len(found) < limit:
            due = self._swept.pop()
            if self._offset_of_waiting(Receipt(due[2])) is not None:
                found.append(due)
        self._swept.extend(reversed(found))
        return found

    def offsets_of_waiting(self, receipts: Iterable[Receipt]) -> list[int]:
        """Tell where those of the calls that wait stand in the log."""
        offsets = [self._offset_of_waiting(receipt) for receipt in receipts]
        return [offset for offset in offsets if offset is not None]

    def _pending_of(self, digests: set[bytes]) -> list[Due]:
        found: list[Due] = []
        for receipt, entry in self.calls.entries.items():
            placed = place_of(entry)
            if placed is not None and is_pending(entry) and scenario_in(entry) in digests:
                found.append((*placed, receipt))
        return sorted(found, reverse=True)

    def _offset_of_waiting(self, receipt: Receipt) -> int | None:
        entry = self.calls.entries.get(receipt)
        if entry is None or not is_pending(entry):
            return None
        placed = place_of(entry)
        return None if placed is None else placed[1]

    # ---- changes -------------------------------------------------------------------------------------------

    def load(self, key: bytes, value: bytes) -> None:
        """Take in one entry of the state topic. Raises ValueError on an entry of another version."""
        kind, name = chr(key[0]), key[1:].decode()
        if kind == SCENARIO:
            self._scenarios.load(name, value)
            return
        if value[0] != VERSION:
            raise ValueError(
                f"expected a state entry of version {VERSION}, got {value[0]}: run reef streams --rebuild"
            )
        if kind == TIME:
            self.now_us = _TIME.unpack(value)[1]
        else:
            self._tables()[kind].load(name, value)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Give the entries changed since the last call, by key; None where one is gone."""
        found: dict[bytes, bytes | None] = {}
        for kind, table in (*self._tables().items(), (SCENARIO, self._scenarios)):
            for name, data in table.take_changes():
                found[(kind + name).encode()] = data
        if self._is_time_changed:
            found[TIME.encode()] = _TIME.pack(VERSION, self.now_us)
            self._is_time_changed = False
        return found

    def _tables(self) -> Mapping[str, Table[Call] | Table[Report] | Table[Experience] | Table[Forgotten]]:
        return {
            CALL: self.calls,
            REPORT: self.reports,
            EXPERIENCE: self.experiences,
            FORGOTTEN: self.forgotten,
        }

    def _follow_call(self, key: str, before: Call | bytes | None, entry: Call | bytes | None) -> None:
        receipt = Receipt(key)
        if entry is not None:
            self._follow_deadline(key, before, entry)
        waited, waits = is_pending(before), is_pending(entry)
        if waits and not waited:
            self.routes.add(route_in(receipt), receipt)
        elif waited and not waits:
            self.routes.remove(route_in(receipt), receipt)
        if before is None or entry is None:
            self._index_imported(receipt, before, entry)

    def _index_imported(
        self, receipt: Receipt, before: Call | bytes | None, entry: Call | bytes | None
    ) -> None:
        found = before if entry is None else entry
        call = unpack_call(found) if isinstance(found, bytes) else found
        if call is None or not call.imported_id:
            return
        receipts = self._imported.setdefault((call.scenario, call.imported_id), {})
        if entry is not None:
            receipts[receipt] = None
            return
        receipts.pop(receipt, None)
        if not receipts:
            del self._imported[call.scenario, call.imported_id]

    def _follow_report(self, key: str, before: Report | bytes | None, entry: Report | bytes | None) -> None:
        self._follow_deadline(REPORT + key, before, entry)
        old = unpack_report(before) if isinstance(before, bytes) else before
        new = unpack_report(entry) if isinstance(entry, bytes) else entry
        self.report_index.update(key, old, new)

    def _follow_experience(
        self, key: str, before: Experience | bytes | None, entry: Experience | bytes | None
    ) -> None:
        self._follow_deadline(EXPERIENCE + key, before, entry)

    def _follow_forgotten(
        self, key: str, before: Forgotten | bytes | None, entry: Forgotten | bytes | None
    ) -> None:
        self._follow_deadline(FORGOTTEN + key, before, entry)

    def _follow_deadline(
        self,
        name: str,
        before: Call | Report | Experience | Forgotten | bytes | None,
        entry: Call | Report | Experience | Forgotten | bytes | None,
    ) -> None:
        placed = place_of(entry)
        if placed is not None and (before is None or place_of(before) != placed):
            self._deadlines.put(name, *placed)

    def _follow_scenario(
        self, key: str, before: Scenario | str | bytes | None, entry: Scenario | str | bytes | None
    ) -> None:
        self._swept = None
        if entry is not None:
            name = ScenarioName(key)
            self._names[scenario_digest(name)] = name
