"""Shell: what a person sees while something takes longer than two seconds; to a file, one line a step."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from deploy.stack_state import ProgramState

_WORDS: Mapping[ProgramState, str] = {
    "waiting": "waiting",
    "starting": "starting …",
    "ready": "ready",
    "restarting": "ended, starting again …",
    "failed": "failed",
}


def say(what: str) -> None:
    """Say one line beside the result, on standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(what)


@contextmanager
def shown_step(what: str) -> Iterator[None]:
    """Show that one thing goes on, and for how long."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield
        return
    with _progress(console) as progress:
        progress.add_task(what, total=None)
        yield


class ProgramBoard:
    """One line a program with its state and time; without a terminal, one line a change."""

    def __init__(self, *, starting: str = "starting …") -> None:
        """Show nothing yet; `starting` is what programs do until they are ready."""
        self._words = {**_WORDS, "starting": starting}
        self._console = Console(stderr=True, highlight=False)
        self._progress = _progress(self._console)
        self._shown: dict[str, ProgramState] = {}
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        """Take the lines of the terminal."""
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""
        self._progress.stop()

    def show(self, programs: Mapping[str, ProgramState]) -> None:
        """Show where each program is."""
        for name, state in programs.items():
            if self._shown.get(name) == state:
                continue
            self._shown[name] = state
            if self._console.is_terminal:
                self._show_line(name, state)
            elif state != "waiting":
                self._console.print(f"{name}: {self._words[state]}")

    def _show_line(self, name: str, state: ProgramState) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=1)
        completed = int(state in ("ready", "failed"))  # a complete task's clock stands still
        self._progress.update(
            self._tasks[name], description=f"{name}: {self._words[state]}", completed=completed
        )


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=console)
