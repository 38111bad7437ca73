"""Shell: what a gateway asks of whoever runs its embedded engine: start from this folder, and start again.

The engine is ended by its recorded pid and start time, as `reef stack down` would; its supervisor sees
that and starts it again, from the folder that is written by then. Not a supervisor.
"""

import asyncio
from pathlib import Path

from deploy.embedded.served_folder import write_served_folder
from deploy.process_record import kill, recorded_pid, session_of


class EngineKeeper:
    """The embedded engine of one state folder."""

    def __init__(self, state_dir: Path, *, model: str) -> None:
        """Take the state folder, and the model's source as the engine is configured with."""
        self._state_dir, self._model = state_dir, model

    async def keep(self, folder: str) -> None:
        """Start the engine from this folder from now on."""
        await asyncio.to_thread(write_served_folder, self._state_dir, model=self._model, folder=folder)

    async def restart(self) -> None:
        """End the engine at once: one that hangs in a swap would not hear a request to end."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        pid = recorded_pid(self._state_dir / "run" / "engine.json")
        if pid is not None:
            kill(session_of(pid))
