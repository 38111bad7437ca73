"""Pure: SAO, single-rollout asynchronous optimisation (arXiv 2607.07508)."""
