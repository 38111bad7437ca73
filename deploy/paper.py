"""Shell: where commands write for people: as wide as the terminal, or without one as the lines."""

import sys
from typing import Final

from rich.console import Console

PAPER_WIDTH: Final = 10_000
"""Columns where there is no terminal: no line is broken, so that other programs find it whole."""


def paper() -> Console:
    """Open standard output."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PAPER_WIDTH
    return console
