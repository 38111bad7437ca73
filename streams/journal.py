"""Pure: changes of a step that can still be undone, and afterwards the names of what changed.

Not a copy of the state: for each change the value before it, nothing else.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

Value = TypeVar("Value")


class Journal(Generic[Value]):
    """What a step changed."""

    __slots__ = ("_before", "_changed", "_put")

    def __init__(self, put: Callable[[str, str, Value | None], None]) -> None:
        """Undo with `put(kind, name, value)`; None removes."""
        self._put = put
        self._before: list[tuple[str, str, Value | None]] = []
        self._changed: dict[tuple[str, str], None] = {}

    def change(self, kind: str, name: str, before: Value | None, after: Value | None) -> None:
        """Put a value and remember the one before it."""
        self._before.append((kind, name, before))
        self._put(kind, name, after)

    def mark(self) -> int:
        """Name this moment of the step, to come back to."""
        return len(self._before)

    def undo(self, mark: int) -> None:
        """Go back to a moment of the step."""
        while len(self._before) > mark:
            self._put(*self._before.pop())

    def take_changed(self) -> list[tuple[str, str]]:
        """Give kind and name of what changed in the steps since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def __enter__(self) -> Self:
        """Begin a step."""
        assert not self._before, "expected steps one after another"
        return self

    def __exit__(self, failed: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        """End a step: keep its changes, or none of them if it failed."""
        if failed is not None:
            self.undo(0)
        for kind, name, _before in self._before:
            self._changed[kind, name] = None
        self._before.clear()
