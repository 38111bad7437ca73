"""Pure: what an erasure reaches: releases that learned from what must be forgotten, and what stays how long.

Not the writing and looking: deploy/commands/forget.py. Nothing here can take anything out of weights.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.events import ArtifactKind, Operation, ReleasePublished
from schemas.ids import BatchId, CandidateId, Receipt, ReleaseId
from schemas.kinds import is_weights, slot_of
from schemas.topics import (
    EXPERIENCE,
    FOREVER_MS,
    INTERACTIONS,
    OUTCOMES,
    REJECTED,
    REPORT_IDS,
    TRAINING,
)

HOLDS: Mapping[str, str] = {
    INTERACTIONS: "the calls and the reports on them: text and token ids",
    EXPERIENCE: "samples made of them: token ids and feedback",
    TRAINING: "samples of sealed batches: token ids and feedback",
    REJECTED: "what was refused of them, with its bytes",
    OUTCOMES: "what became of them: ids and reasons, no text",
    REPORT_IDS: "ids of reports on them: no text",
}
"""Topics in which something of a call may stand."""
BEYOND_THE_LOG = (
    "blobs: what other records name too, and large fields of samples and reports, until you delete them",
    "weights: what a release has learned stays in it; a rollback to one from before is the only way out",
    "the client's own files and whatever others copied from the topics",
)
"""What no retention ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """A release that learned from what is to be forgotten."""

    release: ReleasePublished
    """The release."""
    is_direct: bool
    """Its own batches hold it; otherwise it was trained on from weights that had."""


@dataclass(slots=True, kw_only=True)
class Reached:
    """What the log holds of the calls that are to be forgotten."""

    receipts: set[Receipt] = field(default_factory=set)
    """Calls found in the log or in samples."""
    states: dict[Receipt, str] = field(default_factory=dict)
    """Their outcomes: `trained`, or the reason of those dropped; none of those that are pending."""
    batches: set[BatchId] = field(default_factory=set)
    """Sealed batches that hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """Something that stays for a while."""

    topic: str
    """Where."""
    what: str
    """Of what kind."""
    until_us: int | None
    """By when the broker may remove it, and does so with its segment; None is never."""


def touched(
    releases: Sequence[ReleasePublished],
    batches: Collection[BatchId],
    bases: Mapping[CandidateId, ReleaseId],
) -> list[Touched]:
    """Find the releases of a chain, oldest first, that have seen these batches.

    `bases` says from which release a candidate was trained; where it says nothing, from the one before it
    that it could take the place of.
    """
    has_seen: dict[ArtifactKind, dict[ReleaseId, bool]] = {}  # a harness has learned nothing from weights
    found: list[Touched] = []
    for release in sorted(releases, key=lambda one: one.release_seq):
        in_slot = has_seen.setdefault(slot_of(release.kind), {})
        is_direct = not set(batches).isdisjoint(release.batch_ids)
        before = next(reversed(in_slot.values()), False)
        base = _base_of(release, bases)
        in_slot[release.release_id] = is_direct or (before if base is None else in_slot.get(base, before))
        if in_slot[release.release_id]:
            found.append(Touched(release=release, is_direct=is_direct))
    return found


def _base_of(release: ReleasePublished, bases: Mapping[CandidateId, ReleaseId]) -> ReleaseId | None:
    if release.operation is Operation.ROLLBACK:
        return release.rollback_target_release_id
    return None if release.candidate_id is None else bases.get(release.candidate_id)


def last_untouched(releases: Sequence[ReleasePublished], found: Sequence[Touched]) -> ReleasePublished | None:
    """Name the newest weights that have seen nothing of it: where a rollback may go."""
    seen = {one.release.release_id for one in found}
    clean = [one for one in releases if is_weights(one.kind) and one.release_id not in seen]
    return max(clean, key=lambda release: release.release_seq) if clean else None


def remains(retention_ms: Mapping[str, int], *, now_us: int) -> list[Remains]:
    """Say what stays where and until when at the latest, by the retention that each topic has."""
    return [
        Remains(topic=topic, what=what, until_us=_until(retention_ms[topic], now_us))
        for topic, what in HOLDS.items()
        if topic in retention_ms
    ]


def _until(kept_ms: int, now_us: int) -> int | None:
    return None if kept_ms == FOREVER_MS else now_us + kept_ms * 1_000


def erasure_object(
    reached: Reached, found: Sequence[Touched], clean: ReleasePublished | None, stays: Sequence[Remains]
) -> dict[str, Any]:
    """Give all of it as JSON can say it."""
    return {
        "calls": {"found": len(reached.receipts), "outcomes": _counted(reached)},
        "batches": sorted(reached.batches),
        "releases": [
            {
                "release_seq": one.release.release_seq,
                "release_id": one.release.release_id,
                "operation": one.release.operation.value,
                "is_direct": one.is_direct,
            }
            for one in found
        ],
        "last_untouched_release_id": None if clean is None else clean.release_id,
        "remains": [{"topic": one.topic, "what": one.what, "until_us": one.until_us} for one in stays],
        "beyond_the_log": list(BEYOND_THE_LOG),
    }


def erasure_lines(
    reached: Reached,
    found: Sequence[Touched],
    clean: ReleasePublished | None,
    stays: Sequence[Remains],
    *,
    when: Callable[[int], str],
) -> Iterator[str]:
    """Say all of it to people; `when` writes times."""
    counts = ", ".join(f"{num} {state}" for state, num in _counted(reached).items()) or "none"
    yield f"calls found in the log: {len(reached.receipts)}; their outcomes so far: {counts}"
    if reached.batches:
        yield f"sealed batches that hold them: {', '.join(sorted(reached.batches))}"
    yield from _release_lines(found, clean)
    yield "what stays in the log, until when at the latest (brokers remove whole segments, up to one later):"
    for one in stays:
        until = "for ever" if one.until_us is None else f"until {when(one.until_us)}"
        yield f"  {one.topic}: {one.what}, {until}"
    yield "what no retention ends:"
    yield from (f"  {what}" for what in BEYOND_THE_LOG)


def _release_lines(found: Sequence[Touched], clean: ReleasePublished | None) -> Iterator[str]:
    if not found:
        yield "releases that learned from them: none known"
        return
    yield "releases that learned from them:"
    for one in found:
        how = "from a batch of its own" if one.is_direct else "on from weights that had"
        yield f"  {one.release.release_seq}  {one.release.release_id}  {how}"
    if clean is not None:
        yield f"the newest one that did not: {clean.release_seq}  {clean.release_id} (`reef rollback`)"


def _counted(reached: Reached) -> dict[str, int]:
    counts: dict[str, int] = {}
    for receipt in reached.receipts:
        state = reached.states.get(receipt, "pending")
        counts[state] = counts.get(state, 0) + 1
    return dict(sorted(counts.items()))
