"""Shell: what a worker answers to `/collective_rpc` beside vLLM's own methods: how far its staging is."""

from typing import Any


class ReefWorkerExtension:
    """Mixed into vLLM's worker by `--worker-extension-cls`."""

    def reef_staging(self) -> dict[str, Any]:
        """Say how far the staging is, and whether a session is open."""
        engine: Any = getattr(self, "weight_transfer_engine", None)
        if engine is None:
            return {
                "phase": "absent",
                "swap_id": "",
                "detail": "no backend",
                "num_bytes": 0,
                "is_open": False,
            }
        return {**engine.look(), "is_open": bool(getattr(self, "_weight_update_active", False))}
