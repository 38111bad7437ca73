"""Shell: what keeping engines on releases works with, and what it needs of others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.catalog import Catalog
from gateway.engines import Engines
from gateway.release_folders import ReleaseFolders
from gateway.stage import Stage
from gateway.swap import SwapParts
from gateway.swap_report import SwapReport
from schemas.events import TrainingTarget
from schemas.ids import ScenarioName


class Chains(Protocol):
    """Where chains of releases are remembered: the views."""

    async def releases(self, scenario: str) -> list[Mapping[str, Any]]:
        """Give a chain, newest first."""

    async def latest(self, scenario: str) -> Mapping[str, Mapping[str, Any]]:
        """Give the newest event of some kinds, `swapped` among them."""


class Keeper(Protocol):
    """Whoever starts an engine: the deployment."""

    async def keep(self, folder: str) -> None:
        """Start the engine from this folder from now on."""

    async def restart(self) -> None:
        """End the engine; it is started again from its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappingParts:
    """What it works with."""

    catalog: Catalog
    """Scenarios and what serves in them."""
    engines: Engines
    """Open, and guarded."""
    stage: Stage
    """Puts releases in their places."""
    folders: ReleaseFolders
    """Brings releases here."""
    swap: SwapParts
    """How a swap is done."""
    chains: Chains
    """What the log says."""
    report: SwapReport
    """Says what happened."""
    keepers: Mapping[str, Keeper]
    """Who starts an engine, by its URL; nobody for one that is given by address."""
    target_of: Callable[[ScenarioName], TrainingTarget]
    """Decides which road a scenario's releases take."""
