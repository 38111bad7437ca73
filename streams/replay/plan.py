"""Pure: what one replay does: its inputs as spools, what it changes, what the log knows beyond the folds.

Handed to other processes, so everything in it can be pickled.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.events import ErasureRequested
from schemas.ids import BatchId, ScenarioName
from schemas.recipe import load_recipe
from schemas.records import Place
from schemas.topics import EXPERIENCE, INTERACTIONS
from streams.replay.change import NO_CHANGE, Change
from streams.scenario import LoadRecipe

SESSIONS, BATCHES = "sessions", "batches"
"""The two stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is looked up in the whole log before anything is folded."""

    erasures: tuple[ErasureRequested, ...] = ()
    """In the range and beyond: they hold from the start."""
    releases: Mapping[ScenarioName, frozenset[int]] = field(default_factory=dict)
    """Numbers of the releases that the range tells of."""
    live_batches: frozenset[BatchId] | None = None
    """Sealed live: their ends are in the log, if anywhere. None when there can be no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One replay, with its inputs at hand."""

    work: Path
    """A folder of this replay alone."""
    num_interactions: int
    """Partitions of `reef.interactions.v1`."""
    num_experience: int
    """Partitions of `reef.experience.v1`."""
    facts: Facts
    """What the log knows beyond the folds."""
    out: Path | None = None
    """Where tables go; None for none."""
    change: Change = NO_CHANGE
    """What is otherwise than in the log."""
    kept: frozenset[str] = frozenset()
    """Topics whose events are kept in spools, for a comparison or for topics."""
    begins_at_us: int = 0
    """When the range begins, if it leaves out a beginning; microseconds UTC."""
    load_recipe: LoadRecipe = load_recipe
    """From a dotted path to a recipe."""

    def input_of(self, place: Place) -> Path:
        """Name the spool of an input partition."""
        return self.work / f"in-{place.topic}-{place.partition}.spool"

    def merged_of(self, partition: int) -> Path:
        """Name the spool of what would have stood in a partition of `reef.experience.v1`."""
        return self.work / f"merged-{partition}.spool"

    def said_of(self, stage: str, number: int, place: Place) -> Path:
        """Name the spool of what a partition of a stage said to a place."""
        return self.work / f"said-{stage}-{number}-{place.topic}-{place.partition}.spool"

    def places(self) -> tuple[Place, ...]:
        """List the input partitions."""
        calls = [Place(INTERACTIONS, number) for number in range(self.num_interactions)]
        return (*calls, *[Place(EXPERIENCE, number) for number in range(self.num_experience)])

    def releases_left(self) -> Counter[ScenarioName]:
        """Count how often each head will move."""
        return Counter({name: len(seqs) for name, seqs in self.facts.releases.items()})


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of a partition, a stage or a whole replay."""

    num_events: int = 0
    """Folded."""
    counts: Counter[str] = field(default_factory=Counter)
    """Events said, by type; refusals and what lies before the range, by name."""

    def add(self, other: "Tally") -> None:
        """Add another's."""
        self.num_events += other.num_events
        self.counts.update(other.counts)
