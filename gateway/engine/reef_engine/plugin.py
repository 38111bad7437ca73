"""Shell: the entry point by which vLLM learns of the backend `reef`, in each of its processes."""

from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory


def register() -> None:
    """Make the backend known; some processes call this twice."""
    if "reef" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("reef", "reef_engine.backend", "ReefTransferEngine")
