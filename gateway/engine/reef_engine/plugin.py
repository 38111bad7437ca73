"""Shell: the entry point by which vLLM learns of the backend `reef`, in each of its processes."""

from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from reef_engine.waiting import sleep_at_once


def register() -> None:
    """Make the backend known, and wait as CPUs want it; some processes call this twice."""
    sleep_at_once()
    if "reef" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("reef", "reef_engine.backend", "ReefTransferEngine")
