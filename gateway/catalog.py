"""Pure: the scenarios that exist, and which one a request means.

Not their creation: whoever reads ScenarioConfigured adds them here.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from gateway.auth import Grant, require_scenario, visible
from gateway.serving import ScenarioState, Serving
from schemas.errors import RejectedError, UnavailableError
from schemas.ids import ScenarioName


class Catalog:
    """Scenarios by name."""

    def __init__(self, names: Iterable[ScenarioName]) -> None:
        """Begin with those of the configuration."""
        self._states = {name: ScenarioState(name=name) for name in names}
        self._configured = tuple(self._states)

    def __contains__(self, name: str) -> bool:
        return name in self._states

    def names(self) -> tuple[ScenarioName, ...]:
        """Name all scenarios that are not retired, sorted."""
        return tuple(sorted(name for name, state in self._states.items() if not state.is_retired))

    def add(self, name: ScenarioName) -> ScenarioState:
        """Add a scenario, or give the one that is there."""
        return self._states.setdefault(name, ScenarioState(name=name))

    def get(self, name: str) -> ScenarioState | None:
        """Give a scenario; None when there is none of this name."""
        return self._states.get(ScenarioName(name))

    def resolve(self, name: str | None, grant: Grant) -> ScenarioState:
        """Find the scenario that a request means. Raises RejectedError."""
        if name is None:
            return self._only(grant)
        require_scenario(grant, name)
        state = self._states.get(ScenarioName(name))
        if state is None or state.is_retired:
            raise self._unknown(name, grant)
        return state

    def _only(self, grant: Grant) -> ScenarioState:
        """The configured one, if it is one: what others created since changes no client's meaning."""
        names = self._configured if len(self._configured) == 1 else self.names()
        if len(names) != 1:
            known = ", ".join(visible(grant, names)) or "none that this token may use"
            raise RejectedError(
                f"expected x-reef-scenario, got none with {len(names)} scenarios: name one of {known}",
                reason="scenario_required",
            )
        require_scenario(grant, names[0])
        return self._states[names[0]]

    def _unknown(self, name: str, grant: Grant) -> RejectedError:
        known = visible(grant, self.names())
        near = get_close_matches(name, known, n=1, cutoff=0.0)
        hint = f"did you mean {near[0]!r}?" if near else "create it with POST /reef/scenarios"
        return RejectedError(
            f"expected the name of a scenario, got {name[:80]!r}, which does not exist: {hint}",
            reason="no_such_scenario",
        )


def require_serving(state: ScenarioState) -> Serving:
    """Give what serves. Raises UnavailableError without a committed release."""
    if state.serving is None:
        why = state.swap_problem or "start `reef release`, then retry"
        raise UnavailableError(
            f"expected a release of scenario {state.name!r} that serves, got none yet: {why}",
            reason="no_release",
        )
    return state.serving
