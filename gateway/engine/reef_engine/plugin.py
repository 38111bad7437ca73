"""Shell: the entry point by which vLLM learns of the backend `reef`, in each of its processes."""

from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from reef_engine.waiting import nap_between_looks


def register() -> None:
    """Make the backend known, and wait as CPUs want it; some processes call this twice."""
    nap_between_looks()
    if "reef" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("reef", "reef_engine.backend", "ReefTransferEngine")
