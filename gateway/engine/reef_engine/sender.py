"""Shell: the weight sender: a long-lived child of the gateway, in the engine's environment: `reef: sender`.

Commands come as JSON lines on stdin, answers go as JSON lines to stdout; the end of stdin ends it. A command
is {"command": "send", "swap_id", "transport": "gloo" or "nccl", "folder", "group_size", "deadline_s", "gpu"}.
The answers are {"event": "started"}, then, for a command, "listening" with the port to join, and "sent" or
"failed" with a detail. "sent" comes when every worker's staging has ended, with the problems that they had.
"""

import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch
from setproctitle import setproctitle

from reef_engine.groups import (
    Arrival,
    GlooGroup,
    Group,
    NcclGroup,
    Seat,
    await_ended,
    publish_forms,
    serve_store,
)
from reef_engine.memory import NUM_ROOMS, two_rooms
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
            sent = send(command)
        except EXPECTED as error:
            _answer(
                {
                    "event": "failed",
                    "swap_id": command.get("swap_id"),
                    "detail": f"{type(error).__name__}: {error}",
                }
            )
        else:
            _answer({"event": "sent", "swap_id": command["swap_id"], **sent})


def send(command: dict[str, Any]) -> dict[str, Any]:
    """Send a folder's tensors to all workers, and wait until each has staged them, or failed to.

    Raises as torch does.
    """
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
        tensors, under_way = folder_tensors(folder), deque[Arrival]()
        for bucket, room in zip(buckets_of(forms), two_rooms(device), strict=False):
            if len(under_way) == NUM_ROOMS:
                under_way.popleft()()
            data = room.of(bucket.num_bytes)
            for (name, place), (found, tensor) in zip(tensors_in(data, bucket), tensors, strict=False):
                assert name == found, f"{name} is not {found}"
                place.copy_(tensor)
                num_bytes += tensor.nbytes
            under_way.append(group.broadcast(data))
        for arrival in under_way:
            arrival()
        group.drain()
        problems = await_ended(store, seat)
    finally:
        group.throw_away()
    return {"num_bytes": num_bytes, "problems": problems}


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
