"""Shell: the weight sender: a long-lived child of the gateway, in the engine's environment: `reef: sender`.

Commands come as JSON lines on stdin, answers go as JSON lines to stdout; the end of stdin ends it. A command
is {"command": "send", "swap_id", "transport": "gloo" or "nccl", "folder", "group_size", "deadline_s", "gpu"}.
The answers are {"event": "started"}, then, for a command, "listening" with the port to join, and "sent" or
"failed" with a detail.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from setproctitle import setproctitle

from reef_engine.groups import GlooGroup, Group, NcclGroup, Seat, await_done, publish_forms, serve_store
from reef_engine.memory import Room
from reef_engine.ranks import SENDER_RANK
from reef_engine.tensors import folder_tensors, tensors_in, weight_files
from reef_engine.transfer_info import HEADER_BYTES_MAX, TensorForm, buckets_of, forms_in

EXPECTED = (RuntimeError, ValueError, LookupError, OSError)
"""What a broken group, a bad folder or a bad command raises."""


def main() -> None:
    """Carry out commands until stdin ends."""
    setproctitle("reef: sender")
    torch.set_num_threads(1)
    _answer({"event": "started"})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            num_bytes = send(command)
        except EXPECTED as error:
            _answer(
                {
                    "event": "failed",
                    "swap_id": command.get("swap_id"),
                    "detail": f"{type(error).__name__}: {error}",
                }
            )
        else:
            _answer({"event": "sent", "swap_id": command["swap_id"], "num_bytes": num_bytes})


def send(command: dict[str, Any]) -> int:
    """Send a folder's tensors to all workers; how many bytes that were. Raises as torch does."""
    folder, group_size = Path(command["folder"]), int(command["group_size"])
    seat = Seat(rank=SENDER_RANK, group_size=group_size, deadline_s=float(command["deadline_s"]))
    forms = [form for path in weight_files(folder) for form in read_forms_of(path)]
    store = serve_store(group_size, seat.deadline_s)
    publish_forms(store, forms)
    _answer({"event": "listening", "swap_id": command["swap_id"], "port": store.port})
    device = (
        torch.device("cpu") if command["transport"] == "gloo" else torch.device("cuda", int(command["gpu"]))
    )
    group: Group = (
        GlooGroup(store, seat) if command["transport"] == "gloo" else NcclGroup(store, seat, device)
    )
    num_bytes = 0
    try:
        room, tensors = Room(device), folder_tensors(folder)
        for bucket in buckets_of(forms):
            data = room.of(bucket.num_bytes)
            for (name, place), (found, tensor) in zip(tensors_in(data, bucket), tensors, strict=False):
                assert name == found, f"{name} is not {found}"
                place.copy_(tensor)
                num_bytes += tensor.nbytes
            group.broadcast(data)
        group.drain()
        await_done(store, seat)
    finally:
        group.throw_away()
    return num_bytes


def read_forms_of(path: Path) -> tuple[TensorForm, ...]:
    """Read the list of tensors at the beginning of a file. Raises ValueError."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > HEADER_BYTES_MAX:
            raise ValueError(f"expected a header of at most {HEADER_BYTES_MAX} bytes in {path}, got {size}")
        return forms_in(file.read(size))


def _answer(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
