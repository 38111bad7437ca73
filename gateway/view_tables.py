"""Pure: the tables of the views: a cache of the log that may be thrown away and made anew.

Not the rows: gateway/projection.py says what each event changes.
"""

from collections.abc import Mapping

from schemas.topics import CANDIDATES, COMMANDS, INTERACTIONS, OUTCOMES, RELEASES, REPORT_IDS, SERVING

VERSION = 5
"""Of the tables: another one makes the views anew from the log."""

TABLES = """
CREATE TABLE IF NOT EXISTS positions(
    topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    PRIMARY KEY(topic, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls(
    number INTEGER PRIMARY KEY, receipt TEXT NOT NULL UNIQUE, scenario TEXT NOT NULL,
    partition INTEGER NOT NULL, offset INTEGER NOT NULL, is_settled INTEGER NOT NULL, facts BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS calls_pending ON calls(scenario) WHERE is_settled=0;
CREATE TABLE IF NOT EXISTS reports(
    number INTEGER PRIMARY KEY, scenario TEXT NOT NULL, report_id TEXT NOT NULL, receipt TEXT NOT NULL,
    partition INTEGER, offset INTEGER, facts BLOB NOT NULL, refusal BLOB,
    UNIQUE(receipt, scenario, report_id));
CREATE INDEX IF NOT EXISTS reports_by_id ON reports(scenario, report_id);
CREATE TABLE IF NOT EXISTS outcomes(
    number INTEGER PRIMARY KEY, receipt TEXT NOT NULL UNIQUE, scenario TEXT NOT NULL, state TEXT NOT NULL,
    reason TEXT, batch_id TEXT, facts BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS outcomes_by_reason ON outcomes(scenario, reason, state);
CREATE INDEX IF NOT EXISTS outcomes_by_batch ON outcomes(batch_id) WHERE batch_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS report_ids(
    number INTEGER PRIMARY KEY, scenario TEXT NOT NULL, report_id TEXT NOT NULL, content_sha256 TEXT NOT NULL,
    facts BLOB NOT NULL, UNIQUE(scenario, report_id));
CREATE TABLE IF NOT EXISTS releases(
    scenario TEXT NOT NULL, release_seq INTEGER NOT NULL, release_id TEXT NOT NULL, facts BLOB NOT NULL,
    PRIMARY KEY(scenario, release_seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS releases_by_id ON releases(release_id);
CREATE TABLE IF NOT EXISTS latest(
    scenario TEXT NOT NULL, name TEXT NOT NULL, facts BLOB NOT NULL,
    PRIMARY KEY(scenario, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS candidates(
    number INTEGER PRIMARY KEY, candidate_id TEXT NOT NULL UNIQUE, scenario TEXT NOT NULL,
    verdict TEXT NOT NULL, facts BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS trainings(
    number INTEGER PRIMARY KEY, candidate_id TEXT NOT NULL UNIQUE, scenario TEXT NOT NULL,
    batch_id TEXT NOT NULL, metrics BLOB NOT NULL, facts BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS trainings_by_batch ON trainings(batch_id);
CREATE TABLE IF NOT EXISTS failures(
    number INTEGER PRIMARY KEY, batch_id TEXT NOT NULL UNIQUE, scenario TEXT NOT NULL, facts BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS swaps(
    number INTEGER PRIMARY KEY, release_id TEXT NOT NULL, swap_id TEXT NOT NULL, gateway_id TEXT NOT NULL,
    facts BLOB NOT NULL, UNIQUE(release_id, swap_id, gateway_id));
CREATE TABLE IF NOT EXISTS commands(
    number INTEGER PRIMARY KEY, command_id TEXT NOT NULL UNIQUE, requested_at_us INTEGER NOT NULL,
    refusal BLOB);
"""

BOUNDED = (
    "calls",
    "reports",
    "outcomes",
    "report_ids",
    "candidates",
    "trainings",
    "failures",
    "swaps",
    "commands",
)
"""Tables that grow with traffic: the oldest numbers go."""

EMPTYING: Mapping[str, tuple[str, ...]] = {
    RELEASES: ("DELETE FROM releases",),
    COMMANDS: ("DELETE FROM commands",),
    CANDIDATES: ("DELETE FROM candidates", "DELETE FROM trainings", "DELETE FROM failures"),
    SERVING: ("DELETE FROM latest WHERE name<>'configured'", "DELETE FROM swaps"),
    REPORT_IDS: ("DELETE FROM report_ids",),
    OUTCOMES: ("DELETE FROM outcomes",),
    INTERACTIONS: (
        "DELETE FROM calls",
        "DELETE FROM reports",
        "DELETE FROM latest WHERE name='configured'",
    ),
}
"""What forgets the events of a topic."""
