"""Pure: what a processor is: a fold, its topics, and whether time must be told to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.outputs import Fetched, Output, Timed


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A fold and its topics: a row of the topology."""

    name: str
    """`session`, `batch` or `relay`, as in metrics."""
    topic: str
    """Its log."""
    state_topic: str
    """Where its entries go, into the partition of the input's number."""
    outputs: tuple[str, ...]
    """Topics it writes to; all of them must exist before it starts."""
    new_state: Callable[[int, int], Any]
    """Make an empty state, given the partition and how many there are."""
    step: Callable[[Any, Timed, Fetched], tuple[Any, tuple[Output, ...]]]
    """The fold's step."""
    needs: Callable[[Any, Timed, Fetched], frozenset[int]]
    """What a step wants read back."""
    is_ticked: bool = False
    """Whether time must be written into its log when nothing else is."""
