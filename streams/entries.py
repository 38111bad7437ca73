"""Pure: what the session fold remembers, as bytes: one entry a call, a report and an experience.

References, lengths and digests only: no token and no text of anybody. A pending call takes 58 bytes and its
key; a settled one shrinks to a key and a deadline. Tuples, since a million of them are packed and unpacked.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum, IntFlag
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, cast

from schemas.ids import ExperienceId, Receipt, ReportId, Route, ScenarioName

VERSION = 1
"""Of the session fold: entries of another version are not read; `reef streams --rebuild` makes them anew."""

DIGEST_BYTES = 16
SCENARIO_BYTES = 8
_PLACE = struct.Struct("<BQq")
"""Version, offset and deadline: how every entry begins."""
_CALL = struct.Struct("<BQqBHqH8s")
_BRANCH = struct.Struct("<I16s")
_REPORT = struct.Struct("<BQqBBqq16sHHH")
_NUM_NAMES = 4
_STATUS_AT = _PLACE.size


class CallStatus(IntEnum):
    """Where a call stands."""

    PENDING = 0
    """It waits for a report."""
    CREDITED = 1
    """It is in an experience."""
    SETTLED = 2
    """Its outcome is written."""


class Fact(IntFlag):
    """What was seen of a call when it arrived; whether it forbids training is for the recipe to say."""

    OPTED_OUT = 1
    CLIENT_ABORTED = 2
    UPSTREAM_FAILED = 4
    TOKEN_GAP = 8
    NOT_TOKEN_EXACT = 16
    GREEDY = 32
    SAMPLING_TRUNCATED = 64
    TAGGED = 128
    """The client named the session."""
    REPORTED = 256
    """A report came that holds no reward."""


class ReportStatus(IntEnum):
    """Where a report stands."""

    WAITING = 0
    """For its calls, for the report it supersedes, or for its scenario."""
    APPLIED = 1
    """It counts."""
    SUPERSEDED = 2
    """Another took its place."""
    WITHDRAWN = 3
    """It was taken back, or takes back another."""


class Branch(NamedTuple):
    """A call's prompt and one of its answers, as later prompts may begin."""

    num_tokens: int
    digest: bytes


class Call(NamedTuple):
    """A call of the window."""

    status: CallStatus
    facts: int
    offset: int
    arrived_us: int
    deadline_us: int
    scenario: bytes
    """Digest of the scenario's name."""
    branches: tuple[Branch, ...]
    """By choice; none once settled."""
    imported_id: str
    """Empty for a call answered here."""


class Report(NamedTuple):
    """A report of the window; one part of it, when it spans routes."""

    status: ReportStatus
    is_session: bool
    """It credits a session, not only the calls it names."""
    is_withdrawal: bool
    """It takes back the report it supersedes."""
    offset: int
    deadline_us: int
    quoted_us: int
    """When the latest call it names was made."""
    arrived_us: int
    route: Route
    scenario: ScenarioName
    digest: bytes
    supersedes: ReportId | None
    superseded_by: str
    """Key of the report that took its place; empty when none did."""
    references: tuple[Receipt, ...]
    awaited: tuple[Receipt, ...]
    """Those whose calls have not come."""
    experiences: tuple[ExperienceId, ...]
    """Those that it labels."""


class Experience(NamedTuple):
    """An experience that corrections may still reach."""

    offset: int
    deadline_us: int
    receipts: tuple[Receipt, ...]


class Forgotten(NamedTuple):
    """A call or a session that must not be learned from."""

    offset: int
    deadline_us: int


def digest(*parts: bytes) -> bytes:
    """Digest bytes as entries keep it."""
    return sha256(b"".join(parts)).digest()[:DIGEST_BYTES]


def prefix_digests(data: bytes, lengths: Iterable[int]) -> dict[int, bytes]:
    """Digest the beginnings of the given lengths, in one pass over the bytes."""
    hashed = sha256()
    found: dict[int, bytes] = {}
    done = 0
    for length in sorted(lengths):
        hashed.update(data[done:length])
        done = length
        found[length] = hashed.copy().digest()[:DIGEST_BYTES]
    return found


@lru_cache
def scenario_digest(scenario: ScenarioName) -> bytes:
    """Name a scenario in eight bytes."""
    return sha256(scenario.encode()).digest()[:SCENARIO_BYTES]


def place_of(entry: Call | Report | Experience | Forgotten | bytes | None) -> tuple[int, int] | None:
    """Give deadline and offset of an entry, packed or not; None when there is none."""
    if isinstance(entry, bytes):
        _, offset, deadline_us = _PLACE.unpack_from(entry)
        return deadline_us, offset
    return None if entry is None else (entry.deadline_us, entry.offset)


def is_pending(entry: Call | bytes | None) -> bool:
    """Whether a call waits, packed or not."""
    if isinstance(entry, bytes):
        return entry[_STATUS_AT] == CallStatus.PENDING
    return entry is not None and entry.status is CallStatus.PENDING


def scenario_in(entry: Call | bytes) -> bytes:
    """Read the scenario's digest of a call, packed or not."""
    return entry[_CALL.size - SCENARIO_BYTES : _CALL.size] if isinstance(entry, bytes) else entry.scenario


def pack_call(call: Call) -> bytes:
    """Write a call's entry."""
    status, facts, offset, arrived_us, deadline_us, scenario, branches, imported_id = call
    head = _CALL.pack(VERSION, offset, deadline_us, status, facts, arrived_us, len(branches), scenario)
    return head + b"".join([_BRANCH.pack(*branch) for branch in branches]) + imported_id.encode()


def unpack_call(data: bytes) -> Call:
    """Read a call's entry."""
    _, offset, deadline_us, status, facts, arrived_us, num_branches, scenario = _CALL.unpack_from(data)
    end = _CALL.size + num_branches * _BRANCH.size
    branches = tuple([Branch._make(each) for each in _BRANCH.iter_unpack(data[_CALL.size : end])])
    return Call(
        _CALL_STATUSES[status],
        facts,
        offset,
        arrived_us,
        deadline_us,
        scenario,
        branches,
        data[end:].decode(),
    )


def pack_report(report: Report) -> bytes:
    """Write a report's entry. No name in it holds a zero character: streams/reports.py sees to that."""
    head = _REPORT.pack(
        VERSION,
        report.offset,
        report.deadline_us,
        report.status,
        report.is_session | report.is_withdrawal << 1,
        report.quoted_us,
        report.arrived_us,
        report.digest,
        len(report.references),
        len(report.awaited),
        len(report.experiences),
    )
    names = (report.route, report.scenario, report.supersedes or "", report.superseded_by)
    return head + "\0".join([*names, *report.references, *report.awaited, *report.experiences]).encode()


def unpack_report(data: bytes) -> Report:
    """Read a report's entry."""
    head = _REPORT.unpack_from(data)
    _, offset, deadline_us, status, flags, quoted_us, arrived_us, digested, *lengths = head
    names = data[_REPORT.size :].decode().split("\0")
    route, scenario, supersedes, superseded_by = names[:_NUM_NAMES]
    awaited_at = _NUM_NAMES + lengths[0]
    experiences_at = awaited_at + lengths[1]
    return Report(
        _REPORT_STATUSES[status],
        bool(flags & 1),
        bool(flags & 2),
        offset,
        deadline_us,
        quoted_us,
        arrived_us,
        Route(route),
        ScenarioName(scenario),
        digested,
        ReportId(supersedes) if supersedes else None,
        superseded_by,
        cast(tuple[Receipt, ...], tuple(names[_NUM_NAMES:awaited_at])),
        cast(tuple[Receipt, ...], tuple(names[awaited_at:experiences_at])),
        cast(tuple[ExperienceId, ...], tuple(names[experiences_at:])),
    )


def pack_experience(experience: Experience) -> bytes:
    """Write an experience's entry."""
    head = _PLACE.pack(VERSION, experience.offset, experience.deadline_us)
    return head + "\0".join(experience.receipts).encode()


def unpack_experience(data: bytes) -> Experience:
    """Read an experience's entry."""
    _, offset, deadline_us = _PLACE.unpack_from(data)
    receipts = cast(tuple[Receipt, ...], tuple(data[_PLACE.size :].decode().split("\0")))
    return Experience(offset, deadline_us, receipts)


def pack_forgotten(forgotten: Forgotten) -> bytes:
    """Write what must be forgotten."""
    return _PLACE.pack(VERSION, *forgotten)


def unpack_forgotten(data: bytes) -> Forgotten:
    """Read what must be forgotten."""
    return Forgotten(*_PLACE.unpack(data)[1:])


_CALL_STATUSES = tuple(CallStatus)
_REPORT_STATUSES = tuple(ReportStatus)
