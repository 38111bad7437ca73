"""Pure: refused inputs: which are meant, how often they were tried again, and what goes back where.

Not the reading and writing: deploy/commands/rejected.py.
"""

import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from rich.table import Table

from deploy.event_lines import event_object, hidden, key_text, open_bytes
from schemas.errors import ConflictError, RejectedError
from schemas.events import Event, EventRejected, Header
from schemas.records import Outgoing
from schemas.topics import CANDIDATES, COMMANDS, EXPERIENCE, INTERACTIONS, REJECTED, is_by_key

ATTEMPTS_HEADER = "reef-redrive-attempts"
"""Of a record that was put back: how often so far, in decimal digits."""
ATTEMPTS_MAX = 3
"""How often a record is put back unless an operator says otherwise."""
INPUT_TOPICS = frozenset({INTERACTIONS, EXPERIENCE, CANDIDATES, COMMANDS})
"""Where each record stands by itself and a repeat is harmless. Training is none of them: samples and seal of
a batch belong together."""
_DIGITS_MAX = 9
_PLACE = re.compile(rf"(?:{re.escape(REJECTED)}[/-])?(\d{{1,9}})[@-](\d{{1,18}})")
_PREVIEW_BYTES = 10
"""Marker and fingerprint: what the writer meant it to be, and nothing of what people wrote."""


Likeness = tuple[str, bytes | None, str | None]
"""What refusals of the same record have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal and where it stands."""

    partition: int
    """Of `reef.rejected.v1`."""
    offset: int
    """Of the refusal, not of what was refused."""
    timestamp_us: int
    """When it was refused."""
    event: EventRejected
    """What was refused, and why."""

    @property
    def name(self) -> str:
        """Name it as commands take it."""
        return f"{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which refusals are meant; None means any."""

    reason: str | None = None
    """Refused for this."""
    topic: str | None = None
    """Refused from here."""
    likeness: Likeness | None = None
    """Of this record."""

    def may_have(self, event: EventRejected) -> bool:
        """Whether a refusal may be meant, as far as can be told without its bytes."""
        if self.reason not in (None, event.reason) or self.topic not in (None, event.source_topic):
            return False
        return self.likeness is None or self.likeness[:2] == (event.source_topic, event.key)

    def has(self, event: EventRejected) -> bool:
        """Whether a refusal is meant."""
        return self.may_have(event) and self.likeness in (None, likeness(event))


@dataclass(slots=True)
class Listing:
    """Counts of all, and the newest few."""

    newest: deque[Refusal]
    """As many as it was made for, in the order in which they were read."""
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By reason, stage and source topic."""

    def take(self, refusal: Refusal) -> None:
        """Count one."""
        event = refusal.event
        self.counts[event.reason, event.stage, event.source_topic] += 1
        self.newest.append(refusal)

    def ordered(self) -> list[Refusal]:
        """Give the newest few, newest first."""
        return sorted(
            self.newest, key=lambda one: (one.timestamp_us, one.partition, one.offset), reverse=True
        )


def place_named(word: str) -> tuple[int, int]:
    """Read `PARTITION@OFFSET` of a refusal. Raises RejectedError."""
    found = _PLACE.fullmatch(word)
    if found is None:
        raise RejectedError(
            f"expected the place of a refusal as PARTITION@OFFSET, got {word[:80]!r}: see `reef rejected`",
            reason="configuration",
        )
    return int(found[1]), int(found[2])


def attempts_of(event: EventRejected) -> int:
    """Say how often the refused record had been put back before."""
    values = [header.value or b"" for header in event.headers if header.name == ATTEMPTS_HEADER]
    last = values[-1] if values else b"0"
    return int(last) if last.isdigit() and len(last) <= _DIGITS_MAX else 0


def likeness(event: EventRejected) -> Likeness:
    """Give what two refusals of the same record have in common: topic, key and the digest of the bytes."""
    digest = None if event.value is None else sha256(event.value).hexdigest()
    return event.source_topic, event.key, digest


class LatestOfEach:
    """Of several refusals of the same record, the one after most attempts."""

    def __init__(self, records_max: int) -> None:
        self._latest: dict[Likeness, Refusal] = {}
        self._records_max = records_max

    def take(self, refusal: Refusal) -> None:
        """Note one. Raises RejectedError beyond the limit."""
        like = likeness(refusal.event)
        known = self._latest.get(like)
        if known is None and len(self._latest) == self._records_max:
            raise RejectedError(
                f"expected at most {self._records_max} records at once, got more: name fewer, or narrow it "
                "by --reason, --topic or --since",
                reason="configuration",
            )
        if known is None or attempts_of(refusal.event) >= attempts_of(known.event):
            self._latest[like] = refusal

    def all(self) -> list[Refusal]:
        """Give them, in the order in which their records were first met."""
        return list(self._latest.values())


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part names of refusals from settings (`--section.key value`) that stand among them."""
    names: list[str] = []
    settings: list[str] = []
    for word in words:
        is_value = bool(settings) and settings[-1].startswith("--") and "=" not in settings[-1]
        (settings if word.startswith("--") or is_value else names).append(word)
    return names, settings


def put_back(event: EventRejected, meant: Event | None, *, attempts_max: int) -> Outgoing:
    """Make the record that goes back; `meant` is what its bytes say, if they are an event.

    Raises RejectedError where nothing may be put back, ConflictError `attempts_spent` at the limit.
    """
    if event.source_topic not in INPUT_TOPICS:
        raise RejectedError(
            f"expected a record of {', '.join(sorted(INPUT_TOPICS))}, got one of {event.source_topic}: it "
            "does not stand by itself; have its writer write it again",
            reason="not_an_input",
        )
    if event.value is None:
        raise RejectedError("expected bytes to put back, got a tombstone: leave it", reason="tombstone")
    attempts = attempts_of(event)
    if attempts >= attempts_max:
        raise ConflictError(
            f"expected fewer than {attempts_max} attempts, got {attempts}: correct what refuses it "
            f"({event.reason}), then raise --attempts-max",
            reason="attempts_spent",
        )
    kept = [header for header in event.headers if header.name != ATTEMPTS_HEADER]
    is_keyed = meant is None or is_by_key(type(meant), event.source_topic) or event.source_partition < 0
    return Outgoing(
        topic=event.source_topic,
        key=event.key or b"",
        value=event.value,
        partition=None if is_keyed else event.source_partition,
        headers=(*kept, Header(name=ATTEMPTS_HEADER, value=b"%d" % (attempts + 1))),
    )


def refusal_object(refusal: Refusal) -> dict[str, Any]:
    """Give a refusal as JSON can say it, without the bytes."""
    event = refusal.event
    return {
        "name": refusal.name,
        "partition": refusal.partition,
        "offset": refusal.offset,
        "timestamp_us": refusal.timestamp_us,
        "stage": event.stage,
        "reason": event.reason,
        "detail": event.detail,
        "source": {
            "topic": event.source_topic,
            "partition": event.source_partition,
            "offset": event.source_offset,
        },
        "key": None if event.key is None else key_text(event.key),
        "num_bytes": None if event.value is None else len(event.value),
        "attempts": attempts_of(event),
    }


def refusal_whole(refusal: Refusal, meant: Event | None, *, with_text: bool) -> dict[str, Any]:
    """Give a refusal with the original bytes: what they say if they are an event, else what they are."""
    event = refusal.event
    made = {
        **refusal_object(refusal),
        "headers": [
            {"name": one.name, "value": _value(one.value, with_text or one.name == ATTEMPTS_HEADER)}
            for one in event.headers
        ],
        "type": None if meant is None else type(meant).__name__,
        "event": None if meant is None else event_object(meant, with_text=with_text),
    }
    if event.value is None:
        return made
    made["sha256"] = sha256(event.value).hexdigest()
    made["begins_with_hex"] = event.value[:_PREVIEW_BYTES].hex()
    return made | ({"value": open_bytes(event.value), "value_hex": event.value.hex()} if with_text else {})


def counts_table(counts: Mapping[tuple[str, str, str], int]) -> Table:
    """Show how many were refused, the most frequent first."""
    table = Table(box=None, pad_edge=False)
    table.add_column("refused", justify="right")
    for title in ("reason", "stage", "topic"):
        table.add_column(title, no_wrap=True)
    for (reason, stage, topic), number in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        table.add_row(f"{number:,}", reason, stage, topic)
    return table


def refusals_table(refusals: Sequence[tuple[Refusal, str]]) -> Table:
    """Show refusals, each with its time as people write it."""
    table = Table(box=None, pad_edge=False)
    for title in ("refusal", "when (UTC)", "reason", "source", "tried again"):
        table.add_column(title, no_wrap=True)
    table.add_column("detail", overflow="fold")
    for refusal, when in refusals:
        event = refusal.event
        source = f"{event.source_topic}/{event.source_partition}@{event.source_offset}"
        table.add_row(refusal.name, when, event.reason, source, str(attempts_of(event)), event.detail)
    return table


def _value(value: bytes | None, is_open: bool) -> Any:
    if value is None:
        return None
    return open_bytes(value) if is_open else hidden(value)
