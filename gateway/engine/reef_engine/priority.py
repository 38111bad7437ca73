"""Shell: who goes first on a CPU that all share: what computes yields to what stages, and to other programs.

A thread of Linux has a niceness of its own, hands it on to those that it starts, and may only make it worse.
So what stages is done by a thread of one that was there before the others were told to yield.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

NICENESS = 5
"""Of threads that compute, beyond that of the process."""
_THREADS = Path("/proc/self/task")
Work = Callable[[], None]


class Starter:
    """Has work done by a thread of the priority that the process began with.

    One thread, so that each work finds the memory that the one before it took: what is free on the heap
    belongs to threads. One that hangs is left behind.
    """

    def __init__(self) -> None:
        """Begin to wait for work."""
        self._works: SimpleQueue[Work] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="reef-starter", daemon=True)
        self._thread.start()

    def start(self, work: Work) -> None:
        """Have work done at once, which nobody waits for."""
        self._works.put(work)

    def let_others_yield(self) -> None:
        """Make all other threads of this process less urgent, and so those that they start."""
        for thread in _THREADS.iterdir() if _THREADS.is_dir() else ():
            if int(thread.name) != self._thread.native_id:
                with suppress(ProcessLookupError):  # it ended meanwhile
                    number = int(thread.name)
                    niceness = os.getpriority(os.PRIO_PROCESS, number)
                    os.setpriority(os.PRIO_PROCESS, number, niceness + NICENESS)

    def _serve(self) -> None:
        hand: Hand | None = None
        while True:
            work = self._works.get()
            if hand is not None and hand.is_busy:
                hand.leave()
                hand = None
            hand = hand or Hand()  # made only now: what others were told was not told to it
            hand.do(work)


class Hand:
    """A thread that does one work after another."""

    def __init__(self) -> None:
        """Begin to wait for work."""
        self.is_busy = False
        self._works: SimpleQueue[Work | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="reef-staging", daemon=True).start()

    def do(self, work: Work) -> None:
        """Do this, when what is being done is done."""
        self.is_busy = True
        self._works.put(work)

    def leave(self) -> None:
        """End after the last work, if that ever ends."""
        self._works.put(None)

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            work()
            self.is_busy = False
