"""Pure: the package that goes into the engine's environment: new weights for one that goes on answering.

Not part of the gateway's program: vLLM loads it as the weight-transfer backend `reef` (plugin.py).
"""
