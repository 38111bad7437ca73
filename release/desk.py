"""Shell: one scenario's work: its chain, its share of the log, and what waits.

Candidates and commands have a line each, so that an operator need not wait for an evaluation. Whoever changes
the chain holds `publishing` meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from release.chain import Chain
from release.evaluate import Evaluates
from release.gate import Shape
from release.log import ScenarioLog, Seen
from release.memory import Memory
from release.metrics import ReleaseMetrics
from release.publish import Passed
from release.settings import EvaluationChoice, ReleaseSettings
from schemas.artifact_fetch import FetchedArtifacts
from schemas.events import CandidateTrained, PromoteCandidate, RollBackRelease
from schemas.ids import CandidateId, ScenarioName

WAITING_MAX = 10_000
"""Candidates or commands in line; beyond them the log is read on later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a scenario's work is done with, whatever becomes of connections."""

    scenario: ScenarioName
    """Whose releases."""
    settings: ReleaseSettings
    """Limits and places."""
    chain: Chain
    """The releases."""
    choice: EvaluationChoice
    """How candidates are evaluated."""
    evaluates: Evaluates
    """Evaluates them."""
    artifacts: FetchedArtifacts
    """Files of releases on this machine, for whoever needs them next."""
    base_shapes: Mapping[str, Shape]
    """Of the base model's weights."""
    metrics: ReleaseMetrics
    """What is counted."""
    now_us: Callable[[], int]
    """Microseconds UTC."""
    passed: Passed
    """Told of each point of a publication's order."""


@dataclass(slots=True, kw_only=True)
class Desk:
    """A scenario at work, as long as its connections hold."""

    means: Means
    """What it works with."""
    log: ScenarioLog
    """Its share of the log."""
    memory: Memory = field(default_factory=Memory)
    """What the log says already."""
    publishing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the chain may change."""
    candidates: asyncio.Queue[CandidateTrained] = field(default_factory=lambda: asyncio.Queue(WAITING_MAX))
    """To be decided, in order."""
    commands: asyncio.Queue[Seen] = field(default_factory=lambda: asyncio.Queue(WAITING_MAX))
    """To be decided, in order."""
    undecided: dict[CandidateId, asyncio.Event] = field(default_factory=dict)
    """Candidates in line."""

    async def take(self, seen: Seen) -> None:
        """Put a question in line, and remember an answer."""
        match seen.event:
            case CandidateTrained() as candidate:
                self.undecided.setdefault(candidate.candidate_id, asyncio.Event())
                await self.candidates.put(candidate)
            case RollBackRelease() | PromoteCandidate():
                await self.commands.put(seen)
            case event:
                self.memory.note(event)

    def decided(self, candidate_id: CandidateId) -> None:
        """Say that a candidate is out of the line."""
        event = self.undecided.pop(candidate_id, None)
        if event is not None:
            event.set()

    async def until_decided(self, candidate_id: CandidateId) -> None:
        """Wait while a candidate is in line."""
        event = self.undecided.get(candidate_id)
        if event is not None:
            await event.wait()
