"""Pure: what the session fold remembers, as bytes: one entry a call, a report and an experience.

References, lengths and digests only: no token and no text of anybody. A pending call takes 105 bytes and its
key; a settled one shrinks to a key and a deadline. Tuples, since a million of them are packed and unpacked.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum, IntFlag
from hashlib import sha256
from typing import NamedTuple

from schemas.ids import ExperienceId, Receipt, ReportId, Route, ScenarioName

VERSION = 1
"""Of the session fold: entries of another version are not read; `reef streams --rebuild` makes them anew."""

DIGEST_BYTES = 16
SCENARIO_BYTES = 8
_CALL = struct.Struct("<BBHQqqII")
_BRANCH_BYTES = 4 + DIGEST_BYTES
_REPORT = struct.Struct("<BBHQqqq")
_EXPERIENCE = struct.Struct("<BQq")
_DEADLINE = struct.Struct("<BQq")
_LENGTH = struct.Struct("<H")


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
    num_prompt_tokens: int
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
    hashed = sha256()
    for part in parts:
        hashed.update(part)
    return hashed.digest()[:DIGEST_BYTES]


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


def scenario_digest(scenario: ScenarioName) -> bytes:
    """Name a scenario in eight bytes."""
    return sha256(scenario.encode()).digest()[:SCENARIO_BYTES]


def pack_call(call: Call) -> bytes:
    """Write a call's entry."""
    head = _CALL.pack(
        VERSION,
        call.status,
        call.facts,
        call.offset,
        call.arrived_us,
        call.deadline_us,
        call.num_prompt_tokens,
        len(call.branches),
    )
    branches = b"".join([branch.num_tokens.to_bytes(4, "little") + branch.digest for branch in call.branches])
    return head + call.scenario + branches + call.imported_id.encode()


def unpack_call(data: bytes) -> Call:
    """Read a call's entry."""
    _, status, facts, offset, arrived_us, deadline_us, num_prompt_tokens, num_branches = _CALL.unpack_from(
        data
    )
    start = _CALL.size + SCENARIO_BYTES
    end = start + num_branches * _BRANCH_BYTES
    branches = tuple(
        [
            Branch(int.from_bytes(data[at : at + 4], "little"), data[at + 4 : at + _BRANCH_BYTES])
            for at in range(start, end, _BRANCH_BYTES)
        ]
    )
    scenario = data[_CALL.size : start]
    return Call(
        CallStatus(status),
        facts,
        offset,
        arrived_us,
        deadline_us,
        num_prompt_tokens,
        scenario,
        branches,
        data[end:].decode(),
    )


def scenario_of_call(data: bytes) -> bytes:
    """Read the scenario's digest of a call's entry."""
    return data[_CALL.size : _CALL.size + SCENARIO_BYTES]


def pack_report(report: Report) -> bytes:
    """Write a report's entry."""
    head = _REPORT.pack(
        VERSION,
        report.status,
        report.is_session | report.is_withdrawal << 1,
        report.offset,
        report.deadline_us,
        report.quoted_us,
        report.arrived_us,
    )
    texts = (report.route, report.scenario, report.supersedes or "", report.superseded_by)
    lists = (report.references, report.awaited, report.experiences)
    return head + report.digest + b"".join(map(_text, texts)) + b"".join(map(_texts, lists))


def unpack_report(data: bytes) -> Report:
    """Read a report's entry."""
    _, status, flags, offset, deadline_us, quoted_us, arrived_us = _REPORT.unpack_from(data)
    start = _REPORT.size + DIGEST_BYTES
    texts = _Texts(data, start)
    route, scenario, supersedes, superseded_by = texts.one(), texts.one(), texts.one(), texts.one()
    return Report(
        ReportStatus(status),
        bool(flags & 1),
        bool(flags & 2),
        offset,
        deadline_us,
        quoted_us,
        arrived_us,
        Route(route),
        ScenarioName(scenario),
        data[_REPORT.size : start],
        ReportId(supersedes) if supersedes else None,
        superseded_by,
        tuple(map(Receipt, texts.many())),
        tuple(map(Receipt, texts.many())),
        tuple(map(ExperienceId, texts.many())),
    )


def pack_experience(experience: Experience) -> bytes:
    """Write an experience's entry."""
    head = _EXPERIENCE.pack(VERSION, experience.offset, experience.deadline_us)
    return head + _texts(experience.receipts)


def unpack_experience(data: bytes) -> Experience:
    """Read an experience's entry."""
    _, offset, deadline_us = _EXPERIENCE.unpack_from(data)
    return Experience(offset, deadline_us, tuple(map(Receipt, _Texts(data, _EXPERIENCE.size).many())))


def pack_forgotten(forgotten: Forgotten) -> bytes:
    """Write what must be forgotten."""
    return _DEADLINE.pack(VERSION, *forgotten)


def unpack_forgotten(data: bytes) -> Forgotten:
    """Read what must be forgotten."""
    return Forgotten(*_DEADLINE.unpack(data)[1:])


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _texts(texts: tuple[str, ...]) -> bytes:
    return _LENGTH.pack(len(texts)) + b"".join(map(_text, texts))


class _Texts:
    """Reads texts one after another."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def one(self) -> str:
        start = self._at + _LENGTH.size
        self._at = start + _LENGTH.unpack_from(self._data, self._at)[0]
        return self._data[start : self._at].decode()

    def many(self) -> tuple[str, ...]:
        (count,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size
        return tuple([self.one() for _ in range(count)])
