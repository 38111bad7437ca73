"""Shell: what somebody wants replayed, of whose log, and what came of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.bus import KafkaAccess
from streams.replay.change import NO_CHANGE, Change
from streams.replay.manifest import Manifest
from streams.replay.ranges import Point

Show = Callable[[str, int, int], None]
"""Is told the stage, how much is done, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody wants replayed."""

    first: Point | None = None
    """From where; None for all that the log holds."""
    last: Point | None = None
    """To before where; None for the end as it is now."""
    change: Change = NO_CHANGE
    """What is to be otherwise."""
    manifest: Manifest | None = None
    """Of an earlier replay, instead of all of these."""
    out: Path | None = None
    """A new folder for tables."""
    suffix: str | None = None
    """Of new replay topics."""
    is_compared: bool = False
    """Whether what happened is compared."""
    jobs: int = 1
    """Processes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Whose log it is."""

    access: KafkaAccess
    """The way to it."""
    blobs_url: str
    """Where large fields are."""
    copies: int
    """Of each partition of new topics."""


@dataclass(slots=True, kw_only=True)
class Result:
    """What a replay did."""

    digest: str
    """Of all outputs; two replays of one manifest have the same."""
    manifest_digest: str
    """Of what was replayed and how."""
    num_events: int
    """Folded, in both stages."""
    counts: Mapping[str, int]
    """Events stated, by type."""
    refused: Mapping[str, int]
    """Records refused by folds, by reason."""
    num_undecodable: int
    """Records of the range that are no events; refused live too."""
    num_before_range: int
    """References to what lies before the range."""
    num_erasures: int
    """Applied from the start."""
    outputs: Mapping[str, str]
    """Digest by file, or by topic."""
    seconds: Mapping[str, float]
    """How long each step took."""
    warnings: Sequence[str]
    """In what this program differs from the one that wrote the manifest."""
    difference: Mapping[str, Any] | None = None
    """What the comparison found."""
