"""Pure: which calls of a route still wait, and which of them is the oldest.

Most routes have one call, and a million routes must fit in memory: one call is held bare, more in a
dictionary, and only a route that overflows gets a heap.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from schemas.ids import Receipt, Route


class _Several:
    """Two calls or more of one route."""

    __slots__ = ("heap", "members")

    def __init__(self, *receipts: Receipt) -> None:
        self.members: dict[Receipt, None] = dict.fromkeys(receipts)
        self.heap: list[tuple[int, Receipt]] | None = None


class Routes:
    """Waiting calls by route."""

    __slots__ = ("_by_route", "_offset_of", "num_waiting")

    def __init__(self, offset_of: Callable[[Receipt], int | None]) -> None:
        """Ask `offset_of` for the place of a waiting call; None when it no longer waits."""
        self._offset_of = offset_of
        self._by_route: dict[Route, Receipt | _Several] = {}
        self.num_waiting = 0

    def add(self, route: Route, receipt: Receipt) -> None:
        """Note that a call, which did not wait before, waits."""
        self.num_waiting += 1
        held = self._by_route.get(route)
        if held is None:
            self._by_route[route] = receipt
        elif isinstance(held, str):
            self._by_route[route] = _Several(held, receipt)
        else:
            held.members[receipt] = None
            offset = self._offset_of(receipt)
            if held.heap is not None and offset is not None:
                heappush(held.heap, (offset, receipt))

    def remove(self, route: Route, receipt: Receipt) -> None:
        """Note that a call, which waited before, no longer waits."""
        self.num_waiting -= 1
        held = self._by_route.get(route)
        if isinstance(held, _Several):
            held.members.pop(receipt, None)
            if not held.members:
                del self._by_route[route]
        elif held == receipt:
            del self._by_route[route]

    def count(self, route: Route) -> int:
        """Count the waiting calls of a route."""
        held = self._by_route.get(route)
        if held is None:
            return 0
        return 1 if isinstance(held, str) else len(held.members)

    def waiting(self, route: Route) -> tuple[Receipt, ...]:
        """List the waiting calls of a route, sorted by name."""
        held = self._by_route.get(route)
        if held is None:
            return ()
        return (held,) if isinstance(held, str) else tuple(sorted(held.members))

    def oldest(self, route: Route) -> Receipt | None:
        """Find the waiting call that arrived first."""
        held = self._by_route.get(route)
        if held is None or isinstance(held, str):
            return held
        if held.heap is None:
            placed = [(self._offset_of(receipt), receipt) for receipt in held.members]
            held.heap = sorted((offset, receipt) for offset, receipt in placed if offset is not None)
        while held.heap:
            offset, receipt = held.heap[0]
            if receipt in held.members and self._offset_of(receipt) == offset:
                return receipt
            heappop(held.heap)
        return None
