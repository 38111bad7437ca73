"""Shell: a service of ours as a program of this machine: the same command that runs alone in a container.

Not its composition, which deploy/commands has: here it is one more child of the supervisor.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.daemon import Daemon, Launch

READY_S_MAX = 300.0
"""A service waits for what it depends on, so it is given longer than it needs itself."""
STOP_S_MAX = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Which service, and how to know that it is ready."""

    name: str
    """Names the log, the record and the lines about it."""
    words: Sequence[str]
    """What is typed after `reef`."""
    state_dir: Path
    """Its log and its record are kept here."""
    is_ready: Callable[[], bool]
    """A question of two seconds at most."""


class Service:
    """A child that runs `reef` with some words, in the folder that we were called in."""

    def __init__(self, options: ServiceOptions) -> None:
        """Start nothing yet."""
        self._words = tuple(options.words)
        self.daemon = Daemon(
            Launch(
                name=options.name,
                folder=Path.cwd(),
                log_path=options.state_dir / "logs" / f"{options.name}.log",
                record_path=options.state_dir / "run" / f"{options.name}.json",
                is_ready=options.is_ready,
                ready_s_max=READY_S_MAX,
                stop_s_max=STOP_S_MAX,
            )
        )

    def start(self) -> None:
        """Start it without waiting. Raises UnavailableError."""
        self.daemon.clear()
        self.daemon.start((sys.executable, "-m", "deploy.cli", *self._words))

    def stop(self, *, stop_s_max: float | None = None) -> None:
        """Ask it to stop, within its own limit or the smaller one given; then end it."""
        self.daemon.stop(stop_s_max=stop_s_max)
