"""Shell: how every command that runs something reads its configuration: `-c FILE` and `--section.key value`.

Not the reading itself: schemas/settings/settings.py does that for any process.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from schemas.settings.load import Loaded
from schemas.settings.problems import ADVICE, ConfigurationError
from schemas.settings.settings import load_for_command

EXIT_WRONG_USAGE: Final = 2

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="serve.yaml; defaults run everything embedded")
]
"""The option of every command that takes a configuration."""
OVERRIDES_ALLOWED: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
"""`context_settings` of such a command: the words left over are `--section.key value`."""


def read_configuration(file: Path | None, overrides: Sequence[str]) -> Loaded:
    """Read the configuration, or say every mistake on standard error and exit with 2."""
    try:
        return load_for_command(file, overrides)
    except ConfigurationError as error:
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        console.print(Text(f"{len(error.problems)} mistake(s) in the configuration", style="bold red"))
        for problem in error.problems:
            console.print(Text(f"  {problem}"))
        console.print(Text(f"nothing was started; {ADVICE}", style="dim"))
        raise typer.Exit(EXIT_WRONG_USAGE) from error
