"""Pure: the line of contents that leads to the head: how far behind it a sample was sampled (STREAMS 23).

Training appends to the line; a rollback brings back the line that the restored content had; a promoted
candidate stands on the line of its own base. So after a rollback the restored weights' samples are fresh, and
those of the weights that were taken back are on no line at all.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from schemas.events import Operation, ReleaseAdvanced
from schemas.ids import Sha256

NODES_MAX = 4_096
"""Releases remembered; what was sampled before them is stale."""


class Node(NamedTuple):
    """A release on its line."""

    content_sha256: Sha256
    """What it serves."""
    previous_seq: int | None
    """The release before it on the line; None at the beginning."""


def node_of(
    event: ReleaseAdvanced, nodes: Mapping[int, Node], head_seq: int | None, candidate_base_seq: int | None
) -> Node:
    """Place a new release. `candidate_base_seq` is the base of a held candidate's batch, None if unknown."""
    content = event.content_sha256
    match event.operation:
        case Operation.ROLLBACK:
            same = [seq for seq, node in nodes.items() if node.content_sha256 == content]
            return Node(content, nodes[max(same)].previous_seq if same else None)
        case Operation.PROMOTE:
            return Node(content, candidate_base_seq)
        case _:
            return Node(content, head_seq)


def distance(
    node_at: Callable[[int], Node | None], *, head_seq: int, sampled_seq: int, at_most: int
) -> int | None:
    """Count the releases on the line between sampling and head; None when it is more, or not on the line."""
    sampled = node_at(sampled_seq)
    seq: int | None = head_seq
    for steps in range(at_most + 1):
        node = None if seq is None else node_at(seq)
        if sampled is None or node is None:
            return None
        if node.content_sha256 == sampled.content_sha256:
            return steps
        seq = node.previous_seq
    return None
