"""Shell: who goes first on a CPU that all share: what computes yields to what stages, and to other programs.

A thread of Linux has a niceness of its own, hands it on to those that it starts, and may only make it worse.
So threads that stage are started by one that was there before the others were told to yield.
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


class Starter:
    """Starts threads of the priority that the process began with."""

    def __init__(self) -> None:
        """Begin to wait for work."""
        self._works: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="reef-starter", daemon=True)
        self._thread.start()

    def start(self, work: Callable[[], None]) -> None:
        """Do work in a thread of its own, which nobody waits for."""
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
        while True:
            threading.Thread(target=self._works.get(), name="reef-staging", daemon=True).start()
