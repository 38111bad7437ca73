"""Pure: what operators decided and asked for, as events of `reef.commands.v1`."""

from dataclasses import dataclass
from enum import StrEnum

from schemas.ids import CandidateId, CommandId, ReleaseId, ScenarioName, Sha256
from schemas.packed import JsonBytes


class TrainingTarget(StrEnum):
    """What training changes in a scenario."""

    UNSPECIFIED = "unspecified"
    """Written by a newer writer than the reader knows."""
    FULL = "full"
    """All weights; artifacts of kind `checkpoint`."""
    LORA = "lora"
    """A low-rank adapter; artifacts of kind `lora`."""
    NONE = "none"
    """Nothing: calls are recorded only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioConfigured:
    """A scenario has this recipe and these options from here on."""

    scenario: ScenarioName
    """The scenario's name."""
    recipe: str
    """Dotted path of the recipe, `package.module:Class`."""
    recipe_digest: Sha256
    """Of the recipe's path and options."""
    options: JsonBytes
    """Canonical JSON `{"recipe": …, "streams": …}`: the recipe's options, and the windows and limits."""
    target: TrainingTarget
    """What training changes."""
    is_retired: bool
    """Sealing has stopped and what is pending is settled as `scenario_retired`."""
    configured_at_us: int
    """Microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBackRelease:
    """Publish an older release's content as the new head. A command: the release service may refuse it."""

    command_id: CommandId
    """One release per command, also when a worker dies."""
    scenario: ScenarioName
    """The chain's scenario."""
    target_release_id: ReleaseId
    """The release whose content comes back."""
    expected_head_release_id: ReleaseId | None
    """Refused if the head is another by then; None to take any head."""
    requested_at_us: int
    """Microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteCandidate:
    """Publish a held candidate on the present head. A command: the release service may refuse it."""

    command_id: CommandId
    """One release per command, also when a worker dies."""
    scenario: ScenarioName
    """The chain's scenario."""
    candidate_id: CandidateId
    """The held candidate."""
    expected_head_release_id: ReleaseId | None
    """Refused if the head is another by then; None to take any head."""
    requested_at_us: int
    """Microseconds UTC."""
