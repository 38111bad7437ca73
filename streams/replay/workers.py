"""Shell: the same work on many partitions, in processes side by side, with one count of what is done."""

import gc
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from typing import Any, Final, TypeVar

POLL_S: Final = 0.2
"""How often progress is told."""
GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Rarer than Python's own: a fold's state is large and has no cycles."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Work = Callable[[Task, Callable[[int], None]], Result]

_count: Any = None


def in_parallel(
    work: Work[Task, Result], tasks: Sequence[Task], *, jobs: int, tell: Callable[[int], None]
) -> list[Result]:
    """Do every task, at most `jobs` at once; results in the order of tasks. `tell` gets the whole count."""
    if jobs <= 1 or len(tasks) <= 1:
        return _in_turn(work, tasks, tell)
    context = multiprocessing.get_context("spawn")  # a copied process would hold our clients' sockets
    count = context.Value("q", 0)
    with ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=context, initializer=_begin, initargs=(count,)
    ) as pool:
        futures = [pool.submit(_do, work, task) for task in tasks]
        unfinished = set(futures)
        while unfinished:
            done, unfinished = wait(unfinished, timeout=POLL_S, return_when=FIRST_EXCEPTION)
            tell(count.value)
            for future in done:
                if future.exception() is not None:
                    pool.shutdown(wait=False, cancel_futures=True)
                future.result()
        return [future.result() for future in futures]


def _in_turn(work: Work[Task, Result], tasks: Sequence[Task], tell: Callable[[int], None]) -> list[Result]:
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
