"""Shell: a worker extension that makes a swap's finish raise, as a bug in a kernel would; loaded by path.

Runs in the engine's environment: it must import nothing of ours but the plug-in.
"""

from typing import Any

from reef_engine.extension import ReefWorkerExtension


class MishapExtension(ReefWorkerExtension):  # type: ignore[misc]  # of an environment without types
    """Adds one call to those of the plug-in."""

    def reef_break_finish(self) -> dict[str, Any]:
        """Let the next finish raise in the middle."""
        engine: Any = self.weight_transfer_engine

        def finish() -> None:
            engine._is_broken = True
            raise RuntimeError("a mishap of the test")

        engine.finish_weight_update = finish
        return {"is_broken": True}
