"""Shell: `reef gateway`: one gateway, until it is told to stop.

Not the dependencies: Kafka and the engine run elsewhere (`reef stack up`), and may come later than this. What
runs is in deploy/one_gateway.py, which takes more than a second to import, so help does without.
"""

import typer

from deploy.beginning import begin_service
from deploy.configuration import ConfigFile, read_configuration


def gateway(context: typer.Context, config: ConfigFile = None) -> None:
    """Run one gateway. Any setting may follow as --section.key value."""
    settings = read_configuration(config, context.args).settings
    begin_service(settings, service="gateway", title="reef: gateway")
    from deploy.one_gateway import run_gateway  # noqa: PLC0415 - HTTP and the swap are not needed for help

    run_gateway(settings)
