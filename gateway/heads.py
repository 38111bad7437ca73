"""Shell: which release a starting gateway serves: the head of each scenario's chain, as the log tells of it.

Not the swap: once something serves, only a swap puts another release in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import structlog

from gateway.catalog import Catalog
from gateway.serving import ScenarioState, Serving
from schemas.events import Event, ReleasePublished
from schemas.ids import ReleaseId, ScenarioName, Sha256

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Chains(Protocol):
    """Where chains of releases are remembered: the views."""

    async def releases(self, scenario: str) -> list[Mapping[str, Any]]:
        """Give a chain, newest first."""


class Heads:
    """Gives scenarios the release to begin with."""

    def __init__(self, catalog: Catalog, *, engine_model: str, chat_template_digest: Sha256) -> None:
        """Take the name under which the engines know the base model."""
        self._catalog = catalog
        self._engine_model = engine_model
        self._chat_template_digest = chat_template_digest

    async def recall(self, chains: Chains) -> None:
        """Serve what was the head when the log was last read; a log that is away stops nobody."""
        for name in self._catalog.names():
            found = await chains.releases(name)
            if found:
                self._begin(name, found[0], found[-1])

    async def hear(self, event: Event) -> None:
        """Serve the first release that the log tells of."""
        if isinstance(event, ReleasePublished) and event.scenario in self._catalog:
            fact = {
                "release_id": event.release_id,
                "release_seq": event.release_seq,
                "tokenizer_digest": event.tokenizer_digest,
            }
            self._begin(event.scenario, fact, fact)

    def engine_up(self, names: Sequence[str]) -> None:
        """Ask for the base model by a name that the engine knows."""
        known = self._engine_model
        if known in names:
            return
        self._engine_model = names[0]
        for name in self._catalog.names():
            state = self._catalog.add(name)
            if state.serving is not None and state.serving.engine_model == known:
                state.serving = replace(state.serving, engine_model=names[0])

    def _begin(self, name: ScenarioName, head: Mapping[str, Any], oldest: Mapping[str, Any]) -> None:
        state: ScenarioState = self._catalog.add(name)
        if oldest["release_seq"] == 0:
            state.first_release_id = ReleaseId(oldest["release_id"])
        if state.serving is not None:
            return
        state.serving = Serving(
            release_id=ReleaseId(head["release_id"]),
            release_seq=head["release_seq"],
            engine_model=self._engine_model,
            tokenizer_digest=Sha256(head["tokenizer_digest"]),
            chat_template_digest=self._chat_template_digest,
        )
        _log.info(
            "serving_begun", scenario=name, release_id=head["release_id"], release_seq=head["release_seq"]
        )
