"""Pure: by which road weights reach the engines (WEIGHTS 7)."""

from typing import Literal

Transport = Literal["nccl", "gloo", "folder"]


def choose_transport(
    asked: Literal["auto", "nccl", "gloo", "folder"], *, is_on_gpu: bool, num_gpus: int, has_sender: bool
) -> Transport:
    """Choose; `has_sender` says whether the engine's environment is on this machine.

    NCCL needs a GPU that no worker has: on a single one the workers read the folder themselves.
    """
    if not has_sender:
        return "folder"
    if asked != "auto":
        return asked
    if not is_on_gpu:
        return "gloo"
    return "nccl" if num_gpus > 1 else "folder"
