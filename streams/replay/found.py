"""Pure: what the log knows beyond the folds: erasures, releases, ends of batches, configurations.

Looked up while the inputs are fetched; what a stage is told of it stands in its plan.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from schemas.codec import encode
from schemas.events import BatchSettled, ErasureRequested, Event, ReleaseAdvanced, ScenarioConfigured
from schemas.ids import BatchId, ScenarioName
from schemas.records import Place
from schemas.topics import INTERACTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Prelude:
    """What was in force before a range, which starts with empty state, yet not without recipe and head."""

    time_us: int
    """When it was said."""
    event: ScenarioConfigured | ReleaseAdvanced
    """What was said."""


@dataclass(slots=True, kw_only=True)
class Found:
    """What was seen in one partition, or in all."""

    num_records: int = 0
    """Written to spools."""
    num_undecodable: int = 0
    """Left out: they were refused live too."""
    erasures: dict[bytes, ErasureRequested] = field(default_factory=dict)
    """By their bytes: each stands in every partition."""
    releases: dict[ScenarioName, set[int]] = field(default_factory=dict)
    """Numbers of the releases that the range tells of."""
    settled_batches: set[BatchId] = field(default_factory=set)
    """Batches whose end the range tells of."""
    configured: dict[ScenarioName, ScenarioConfigured] = field(default_factory=dict)
    """As last configured within the range."""

    def note(self, event: Event) -> None:
        """Look at an event."""
        match event:
            case ErasureRequested():
                self.erasures[encode(event)] = event
            case ReleaseAdvanced():
                self.releases.setdefault(event.scenario, set()).add(event.release_seq)
            case BatchSettled():
                self.settled_batches.add(event.batch_id)
            case ScenarioConfigured():
                self.configured[event.scenario] = event
            case _:
                pass

    def add(self, other: "Found") -> None:
        """Add another partition's."""
        self.num_records += other.num_records
        self.num_undecodable += other.num_undecodable
        self.erasures |= other.erasures
        for name, seqs in other.releases.items():
            self.releases.setdefault(name, set()).update(seqs)
        self.settled_batches |= other.settled_batches
        self.configured |= other.configured

    def ordered_erasures(self) -> tuple[ErasureRequested, ...]:
        """Give the erasures in an order that depends on nothing but themselves."""
        return tuple([self.erasures[data] for data in sorted(self.erasures)])


def in_force(prelude: Iterable[Prelude], place: Place, before_us: int) -> Iterator[Event]:
    """Give what held when a range of a partition began: the line of releases, and the last configurations."""
    configured: dict[ScenarioName, ScenarioConfigured] = {}
    releases: list[ReleaseAdvanced] = []
    for said in prelude:
        if said.time_us >= before_us:
            continue
        if isinstance(said.event, ScenarioConfigured):
            configured[said.event.scenario] = said.event
        else:
            releases.append(said.event)
    for name in sorted(configured):
        yield configured[name]
    if place.topic != INTERACTIONS:
        yield from releases
