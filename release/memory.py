"""Pure: what the log already says about one scenario's releases, so that nothing is done or said twice.

Not the truth about the chain, which is lakeFS's `main`.
"""

from dataclasses import dataclass, field

from release.head import Release, ReleaseEvent, events_of
from schemas.codec import decode
from schemas.errors import ReefError
from schemas.events import (
    CandidateEvaluated,
    Event,
    EventRejected,
    PromoteCandidate,
    ReleasePublished,
    RollBackRelease,
    SwapRequested,
    Verdict,
)
from schemas.ids import CandidateId, CommandId, ReleaseId, SwapId
from schemas.topics import COMMANDS


@dataclass(slots=True, kw_only=True)
class Memory:
    """Ids of events that stand in the log."""

    verdicts: dict[CandidateId, Verdict] = field(default_factory=dict)
    """Of candidates; the first counts."""
    published: set[ReleaseId] = field(default_factory=set)
    """Releases."""
    requested: set[SwapId] = field(default_factory=set)
    """Swaps."""
    refused: set[CommandId] = field(default_factory=set)
    """Commands."""

    def note(self, event: Event) -> None:
        """Remember an event of the log."""
        match event:
            case CandidateEvaluated():
                self.verdicts.setdefault(event.candidate_id, event.verdict)
            case ReleasePublished():
                self.published.add(event.release_id)
            case SwapRequested():
                self.requested.add(event.swap_id)
            case EventRejected():
                self.refused.update(_command_ids_in(event))
            case _:
                pass

    def holds(self, event: ReleaseEvent) -> bool:
        """Whether the log holds this event."""
        match event:
            case CandidateEvaluated():
                return event.candidate_id in self.verdicts
            case ReleasePublished():
                return event.release_id in self.published
            case SwapRequested():
                return event.swap_id in self.requested

    def missing(self, release: Release) -> tuple[ReleaseEvent, ...]:
        """Give the events of a release that the log does not hold, in their order."""
        return tuple(event for event in events_of(release) if not self.holds(event))


def _command_ids_in(event: EventRejected) -> tuple[CommandId, ...]:
    if event.source_topic != COMMANDS or event.value is None:
        return ()
    try:
        refused = decode(event.value)
    except ReefError:
        return ()
    return (refused.command_id,) if isinstance(refused, RollBackRelease | PromoteCandidate) else ()
