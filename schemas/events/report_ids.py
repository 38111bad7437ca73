"""Pure: which reports were accepted, as events of `reef.report-ids.v1`: the gateways' idempotency index."""

from dataclasses import dataclass

from schemas.ids import Receipt, ReportId, ScenarioName, Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAccepted:
    """A report id is taken by this content; the record's key is scenario and report id."""

    scenario: ScenarioName
    """The report's scenario."""
    report_id: ReportId
    """As given by the client, or minted."""
    content_sha256: Sha256
    """Of the report's canonical JSON: the same again is a repeat, another a conflict."""
    references: tuple[Receipt, ...]
    """The calls judged; a superseding report goes to their routes too."""
    accepted_at_us: int
    """Microseconds UTC."""
