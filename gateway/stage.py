"""Pure: puts releases in their places: what each scenario's new calls are answered by from here on.

Not the swap: whoever calls this has made sure that the engines hold what they are said to hold.
"""

from dataclasses import replace

from gateway.catalog import Catalog
from gateway.serving import Serving
from gateway.target import Target
from schemas.ids import ReleaseId, ScenarioName, Sha256


class Stage:
    """The scenarios' places."""

    def __init__(self, catalog: Catalog, *, base_model: str, chat_template_digest: Sha256) -> None:
        """Take the name under which engines know the base model."""
        self._catalog = catalog
        self._base_model = base_model
        self._chat_template_digest = chat_template_digest
        self._weights: ReleaseId | None = None
        self._owner: ScenarioName | None = None

    def rename(self, base_model: str) -> None:
        """Ask for the base model by the name that the engines know."""
        known, self._base_model = self._base_model, base_model
        for name in self._catalog.names():
            state = self._catalog.add(name)
            if state.serving is not None and state.serving.engine_model == known:
                state.serving = replace(state.serving, engine_model=base_model)

    @property
    def base_model(self) -> str:
        """The name under which engines know the base model."""
        return self._base_model

    def put_base(self, target: Target) -> None:
        """Let the engines' own weights be this release's: the fence of its open streams is here."""
        self._weights, self._owner = target.release_id, target.scenario
        self._put(target, self._base_model, None)
        for name in self._catalog.names():
            state = self._catalog.add(name)
            if name != target.scenario and state.serving is not None:
                state.serving = replace(state.serving, weights_release_id=target.release_id)
        self._catalog.add(target.scenario).streams.close_spans(target.release_seq)

    def put_above(self, target: Target, engine_model: str | None = None) -> None:
        """Let a release answer that is an adapter, or nothing that engines know of."""
        weights = None if self._owner == target.scenario else self._weights
        self._put(target, engine_model or self._base_model, weights)

    def _put(self, target: Target, engine_model: str, weights: ReleaseId | None) -> None:
        self._catalog.add(target.scenario).serving = Serving(
            release_id=target.release_id,
            release_seq=target.release_seq,
            engine_model=engine_model,
            tokenizer_digest=target.tokenizer_digest,
            chat_template_digest=self._chat_template_digest,
            weights_release_id=weights,
        )
