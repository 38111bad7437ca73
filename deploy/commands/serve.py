"""Shell: `reef serve`: everything of one deployment on one machine. So far it only shows its configuration.

Not the running of the services yet: `reef stack up` runs the dependencies.
"""

from typing import Annotated

import typer

from deploy.configuration import ConfigFile, read_configuration
from schemas.settings.printed import printed

PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="show every value and where it came from, and do nothing else")
]


def serve(context: typer.Context, config: ConfigFile = None, print_config: PrintConfig = False) -> None:
    """Run the whole system. Any setting may follow as --section.key value."""
    loaded = read_configuration(config, context.args)
    if print_config:
        typer.echo(printed(loaded.settings, loaded.sources), nl=False)
        return
    typer.echo(
        "expected to run the whole system, but this version cannot yet: the services come later. "
        "Run the dependencies with `reef stack up`, or show this configuration with --print-config.",
        err=True,
    )
    raise typer.Exit(1)
