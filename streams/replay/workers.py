"""Shell: the same work on many partitions, in processes side by side, with one count of what is done."""

import gc
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from types import TracebackType
from typing import Any, Final, Self, TypeVar

POLL_S: Final = 0.2
"""How often progress is told."""
SMALL_RECORDS: Final = 2_000
"""Below it this process alone is faster than others that are yet to start."""
GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Rarer than Python's own: a fold's state is large and has no cycles."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Tell = Callable[[int], None]
"""Is told how many records are done."""
Work = Callable[[Task, Tell], Result]

_count: Any = None


class Crew:
    """Processes, started when first needed and kept for the next stage; used inside `with`."""

    def __init__(self, jobs: int) -> None:
        """Work in this process alone when `jobs` is one."""
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._done: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def do(self, work: Work[Task, Result], tasks: Sequence[Task], *, size: int, tell: Tell) -> list[Result]:
        """Do every task; results in the order of tasks. `size` counts their records."""
        if self._jobs <= 1 or len(tasks) <= 1 or size < SMALL_RECORDS:
            return _in_turn(work, tasks, tell)
        pool = self._started()
        self._done.value = 0
        futures = [pool.submit(_do, work, task) for task in tasks]
        unfinished = set(futures)
        while unfinished:
            done, unfinished = wait(unfinished, timeout=POLL_S, return_when=FIRST_EXCEPTION)
            tell(self._done.value)
            for future in done:
                future.result()
        return [future.result() for future in futures]

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a copied process would hold our clients' sockets
            self._done = context.Value("q", 0)
            self._pool = ProcessPoolExecutor(
                self._jobs, mp_context=context, initializer=_begin, initargs=(self._done,)
            )
        return self._pool


def _in_turn(work: Work[Task, Result], tasks: Sequence[Task], tell: Tell) -> list[Result]:
    total = 0

    def told(more: int) -> None:
        nonlocal total
        total += more
        tell(total)

    return [work(task, told) for task in tasks]


def _begin(count: Any) -> None:
    global _count  # noqa: PLW0603 - how a pool hands something shared to its processes
    _count = count
    gc.set_threshold(*GC_THRESHOLDS)


def _do(work: Work[Task, Result], task: Task) -> Result:
    def told(more: int) -> None:
        with _count.get_lock():
            _count.value += more

    return work(task, told)
