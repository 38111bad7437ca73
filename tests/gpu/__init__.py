"""Shell: what needs a CUDA device: left out of `make test`, run by `pytest -m gpu` where there is one."""
