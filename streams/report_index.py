"""Pure: reports found by what they wait for, what they replace and what they cover.

Derived from the entries alone; lists are sorted, so no order of arrival shows.
"""

from bisect import bisect_left, insort

from schemas.ids import Receipt, ReportId, Route, ScenarioName
from streams.entries import Report, ReportStatus


class ReportIndex:
    """Reports found by what they wait for, replace or cover."""

    def __init__(self) -> None:
        """Start empty."""
        self.num_waiting = 0
        self.waiting: dict[str, dict[str, None]] = {}
        """Waiting reports by scenario."""
        self.awaited: dict[str, dict[str, None]] = {}
        """Reports by the calls they name that have not come."""
        self.superseded: dict[str, dict[str, None]] = {}
        """Reports by scenario and id of the report they replace."""
        self._sessions: dict[Route, list[tuple[int, str]]] = {}

    def awaiting(self, receipt: Receipt) -> list[str]:
        """List the reports that name a call which has not come."""
        return sorted(self.awaited.get(receipt, ()))

    def superseding(self, scenario: ScenarioName, report_id: ReportId) -> list[str]:
        """List the reports that replace one."""
        return sorted(self.superseded.get(f"{scenario}/{report_id}", ())) if self.superseded else []

    def waiting_in(self, scenario: ScenarioName) -> list[str]:
        """List the reports of a scenario that wait."""
        return sorted(self.waiting.get(scenario, ()))

    @property
    def covers_sessions(self) -> bool:
        """Whether any report credits more than the calls it names."""
        return bool(self._sessions)

    def covering(self, route: Route, made_us: int) -> list[str]:
        """List the reports that credit the turns of a session up to a time not before `made_us`."""
        reports = self._sessions.get(route)
        if not reports:
            return []
        return [key for _, key in reports[bisect_left(reports, (made_us, "")) :]]

    def update(self, key: str, old: Report | None, new: Report | None) -> None:
        """Follow a change of a report's entry."""
        if old is not None:
            self._remove(key, old)
        if new is not None:
            self._add(key, new)

    def _add(self, key: str, report: Report) -> None:
        for index, name in () if _is_unnamed(report) else _indexed(self, report):
            index.setdefault(name, {})[key] = None
        if report.status is ReportStatus.WAITING:
            self.num_waiting += 1
        elif report.is_session and report.status is ReportStatus.APPLIED:
            insort(self._sessions.setdefault(report.route, []), (report.quoted_us, key))

    def _remove(self, key: str, report: Report) -> None:
        for index, name in () if _is_unnamed(report) else _indexed(self, report):
            keys = index[name]
            del keys[key]
            if not keys:
                del index[name]
        if report.status is ReportStatus.WAITING:
            self.num_waiting -= 1
        elif report.is_session and report.status is ReportStatus.APPLIED:
            covering = self._sessions[report.route]
            del covering[bisect_left(covering, (report.quoted_us, key))]
            if not covering:
                del self._sessions[report.route]


def _is_unnamed(report: Report) -> bool:
    """Whether no index names a report, as is so of most: it came after its calls and replaces nothing."""
    return report.status is not ReportStatus.WAITING and report.supersedes is None and not report.awaited


def _indexed(of: ReportIndex, report: Report) -> list[tuple[dict[str, dict[str, None]], str]]:
    found: list[tuple[dict[str, dict[str, None]], str]] = []
    if report.status is ReportStatus.WAITING:
        found.append((of.waiting, report.scenario))
    if report.awaited and report.status in (ReportStatus.WAITING, ReportStatus.APPLIED):
        found += [(of.awaited, receipt) for receipt in report.awaited]
    if report.supersedes is not None:
        found.append((of.superseded, f"{report.scenario}/{report.supersedes}"))
    return found


def report_key(scenario: ScenarioName, report_id: ReportId, part: int) -> str:
    """Name a part of a report within the fold."""
    return f"{scenario}/{part}/{report_id}"
