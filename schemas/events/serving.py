"""Pure: what engines serve, as events of `reef.serving.v1`.

Next: schemas/__init__.py
"""

from dataclasses import dataclass
from enum import StrEnum

from schemas.ids import GatewayId, ReleaseId, ScenarioName, SwapId


class SwapFailure(StrEnum):
    """Why an engine does not serve what was requested."""

    UNSPECIFIED = "unspecified"
    """Written by a newer gateway than the reader knows."""
    ARTIFACT_UNAVAILABLE = "artifact_unavailable"
    """The files could not be fetched."""
    DIGEST_MISMATCH = "digest_mismatch"
    """The files are not what the release says."""
    SENDER_FAILED = "sender_failed"
    """The weight sender died or broke off."""
    ENGINE_FAILED = "engine_failed"
    """The engine refused or died; it is restarted on the head release."""
    VERIFICATION_FAILED = "verification_failed"
    """The engine answers another version than the one loaded."""
    DEADLINE = "deadline"
    """It took longer than `inference.swap_deadline_s`."""
    ENGINE_NOT_SWAPPABLE = "engine_not_swappable"
    """The engine has no weight routes."""
    OVERTAKEN = "overtaken"
    """A newer release was requested meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSwapped:
    """An engine serves another release from here on."""

    swap_id: SwapId
    """The request that was carried out."""
    scenario: ScenarioName
    """The record's key."""
    release_id: ReleaseId
    """What is served now."""
    release_seq: int
    """Its place in the chain."""
    gateway_id: GatewayId
    """The gateway that did it."""
    engine: str
    """The engine's URL."""
    num_bytes: int
    """Weights moved."""
    stage_ms: float
    """Staging, while the old release served."""
    pause_ms: float
    """From sending the pause to the answer of the resume."""
    max_stream_gap_ms: float
    """Largest gap of any open stream until one second after."""
    total_ms: float
    """From taking the request to resuming."""
    swapped_at_us: int
    """Microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapFailed:
    """A swap did not happen; the gateway tries the head again by itself."""

    swap_id: SwapId
    """The request."""
    scenario: ScenarioName
    """The record's key."""
    reason: SwapFailure
    """One word for machines."""
    detail: str
    """What was expected, what came, what to do."""
    serving_release_id: ReleaseId
    """What is served meanwhile."""
    gateway_id: GatewayId
    """The gateway that tried."""
    failed_at_us: int
    """Microseconds UTC."""
