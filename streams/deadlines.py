"""Pure: what falls due when: keys by deadline, found without looking at those that wait longer.

Not a timer: time is an argument. A key may be put again with another deadline: the old one is forgotten when
it comes up, since `placed` then tells otherwise. Seconds that lie ahead hold bare keys, a few bytes each;
only the seconds that have begun are sorted.
"""

from bisect import insort
from collections.abc import Callable
from heapq import heappop, heappush

SECOND_US = 1_000_000

Due = tuple[int, int, str]
"""Deadline, offset, key: the order in which things expire, whatever the order in which they came."""


class Deadlines:
    """Keys by the second in which they fall due."""

    __slots__ = ("_ahead", "_begun", "_begun_until_s", "_placed", "_quiet_until_us", "_seconds")

    def __init__(self, placed: Callable[[str], tuple[int, int] | None]) -> None:
        """Ask `placed` for a key's present deadline and offset; None when the key is gone."""
        self._placed = placed
        self._ahead: dict[int, list[str]] = {}
        self._seconds: list[int] = []
        self._begun: list[Due] = []
        self._begun_until_s = -1
        self._quiet_until_us = 0

    def put(self, key: str, deadline_us: int, offset: int) -> None:
        """Remember when a key falls due."""
        self._quiet_until_us = min(self._quiet_until_us, deadline_us)
        second = deadline_us // SECOND_US
        if second <= self._begun_until_s:
            insort(self._begun, (deadline_us, offset, key))
            return
        keys = self._ahead.get(second)
        if keys is None:
            self._ahead[second] = [key]
            heappush(self._seconds, second)
        else:
            keys.append(key)

    def due(self, now_us: int, limit: int) -> list[Due]:
        """List what is due, at most `limit`, in order. It stays until its key is gone or put again."""
        if now_us < self._quiet_until_us:
            return []
        begun = self._begun
        self._begin_until(now_us // SECOND_US)
        kept: list[Due] = []
        seen = 0
        while seen < len(begun) and begun[seen][0] <= now_us and len(kept) < limit:
            if self._holds(begun[seen]) and begun[seen] not in kept[-1:]:
                kept.append(begun[seen])
            seen += 1
        begun[:seen] = kept
        if not kept:
            self._quiet_until_us = self._earliest_possible_us(now_us)
        return kept

    def _earliest_possible_us(self, now_us: int) -> int:
        ahead_us = self._seconds[0] * SECOND_US if self._seconds else now_us + SECOND_US
        return min(self._begun[0][0], ahead_us) if self._begun else ahead_us

    def earliest_us(self) -> int | None:
        """Give the first deadline, None when nothing waits."""
        while True:
            while self._begun and not self._holds(self._begun[0]):
                del self._begun[0]
            if self._begun:
                return self._begun[0][0]
            if not self._seconds:
                return None
            self._begin_until(self._seconds[0])

    def _holds(self, due: Due) -> bool:
        return self._placed(due[2]) == due[:2]

    def _begin_until(self, now_s: int) -> None:
        if now_s <= self._begun_until_s:
            return
        self._begun_until_s = now_s
        while self._seconds and self._seconds[0] <= now_s:
            second = heappop(self._seconds)
            for key in self._ahead.pop(second):
                placed = self._placed(key)
                if placed is not None and placed[0] // SECOND_US == second:  # else it was put elsewhere
                    self._begun.append((*placed, key))
        self._begun.sort()
