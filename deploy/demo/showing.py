"""Shell: shows a run while it goes on: a live screen on a terminal, a line a batch anywhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from deploy.demo.screen import batch_line, screen
from deploy.demo.story import Story

Show = Callable[[str], None]
"""Shows how the run stands now, with a note."""


@contextmanager
def showing(console: Console, story: Story, question: str) -> Iterator[Show]:
    """Give what is to be called whenever something may have changed."""
    if not console.is_terminal:
        console.print(f"each release is asked: {question}", markup=False, soft_wrap=True)
        yield _Lines(console, story).show
        return
    with Live(screen(story, "", question), console=console, auto_refresh=False) as live:
        yield lambda note: live.update(screen(story, note, question), refresh=True)


class _Lines:
    """For a pipe or a file, which no screen is drawn into."""

    def __init__(self, console: Console, story: Story) -> None:
        self._console, self._story, self._num_told = console, story, 0

    def show(self, note: str) -> None:
        for batch in self._story.sealed[self._num_told :]:
            if self._story.awaits(batch):
                return
            self._num_told += 1
            self._console.print(batch_line(batch), markup=False, soft_wrap=True)
