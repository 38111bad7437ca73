"""Pure: the latest events of a partition, at hand for as long as they take less than so much memory.

A call is usually reported on soon, so that most steps find here what they want. What is forgotten is read
again by whoever keeps it.
"""

from collections import deque

from streams.outputs import EVENT_BYTES, Timed


class Recent:
    """Events by offset, the first kept forgotten first."""

    def __init__(self, bytes_max: int) -> None:
        """Take the bound, counted as memory."""
        self._bytes_max = bytes_max
        self.events: dict[int, Timed | None] = {}
        """For whoever looks without asking."""
        self._sizes: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def keep(self, timed: Timed, size_bytes: int) -> None:
        """Keep an event of so many bytes in the log; one that is there stays where it is."""
        if timed.offset in self.events:
            return
        taken_bytes = size_bytes + EVENT_BYTES
        self.events[timed.offset] = timed
        self._sizes.append((timed.offset, taken_bytes))
        self._bytes += taken_bytes
        while self._bytes > self._bytes_max:
            offset, forgotten_bytes = self._sizes.popleft()
            del self.events[offset]
            self._bytes -= forgotten_bytes
