"""Pure: reports found by what they wait for, what they replace and what they cover.

Derived from the entries alone; lists are sorted, so no order of arrival shows.
"""

from bisect import bisect_left, insort

from schemas.ids import Receipt, ReportId, Route, ScenarioName
from streams.entries import Report, ReportStatus, unpack_report


class ReportIndex:
    """Reports found by what they wait for, replace or cover."""

    def __init__(self) -> None:
        """Start empty."""
        self.num_waiting = 0
        self._parts: dict[str, dict[str, None]] = {}
        self._awaiting: dict[str, dict[str, None]] = {}
        self._superseding: dict[str, dict[str, None]] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        self._sessions: dict[Route, list[tuple[int, str]]] = {}

    def parts(self, scenario: ScenarioName, report_id: ReportId) -> list[str]:
        """List the parts of a report, by key."""
        return sorted(self._parts.get(f"{scenario}/{report_id}", ()))

    def awaiting(self, receipt: Receipt) -> list[str]:
        """List the reports that name a call which has not come."""
        return sorted(self._awaiting.get(receipt, ()))

    def superseding(self, scenario: ScenarioName, report_id: ReportId) -> list[str]:
        """List the reports that replace one."""
        return sorted(self._superseding.get(f"{scenario}/{report_id}", ()))

    def waiting_in(self, scenario: ScenarioName) -> list[str]:
        """List the reports of a scenario that wait."""
        return sorted(self._waiting.get(scenario, ()))

    def covering(self, route: Route, made_us: int) -> list[str]:
        """List the reports that credit the turns of a session up to a time not before `made_us`."""
        reports = self._sessions.get(route, [])
        return [key for _, key in reports[bisect_left(reports, (made_us, "")) :]]

    def update(self, key: str, old: bytes | None, new: bytes | None) -> None:
        """Follow a change of a report's entry."""
        if old is not None:
            self._remove(key, unpack_report(old))
        if new is not None:
            self._add(key, unpack_report(new))

    def _add(self, key: str, report: Report) -> None:
        for index, name in self._indexed(key, report):
            index.setdefault(name, {})[key] = None
        self.num_waiting += report.status is ReportStatus.WAITING
        if report.is_session and report.status is ReportStatus.APPLIED:
            insort(self._sessions.setdefault(report.route, []), (report.quoted_us, key))

    def _remove(self, key: str, report: Report) -> None:
        for index, name in self._indexed(key, report):
            keys = index[name]
            del keys[key]
            if not keys:
                del index[name]
        self.num_waiting -= report.status is ReportStatus.WAITING
        if report.is_session and report.status is ReportStatus.APPLIED:
            covering = self._sessions[report.route]
            del covering[bisect_left(covering, (report.quoted_us, key))]
            if not covering:
                del self._sessions[report.route]

    def _indexed(self, key: str, report: Report) -> list[tuple[dict[str, dict[str, None]], str]]:
        report_id = key.split("/", 2)[2]
        found = [(self._parts, f"{report.scenario}/{report_id}")]
        if report.status in (ReportStatus.WAITING, ReportStatus.APPLIED):
            found += [(self._awaiting, receipt) for receipt in report.awaited]
        if report.supersedes is not None:
            found.append((self._superseding, f"{report.scenario}/{report.supersedes}"))
        if report.status is ReportStatus.WAITING:
            found.append((self._waiting, report.scenario))
        return found


def report_key(scenario: ScenarioName, report_id: ReportId, part: int) -> str:
    """Name a part of a report within the fold."""
    return f"{scenario}/{part}/{report_id}"
