"""Shell: `reef release`: candidates are judged, the chains of releases grow, operators' commands are obeyed.

Not the dependencies: Kafka and lakeFS run elsewhere (`reef stack up`), and may come later than this. What
runs is in deploy/releasing.py, which takes seconds to import, so help does without.
"""

import typer

from deploy.beginning import begin_service
from deploy.configuration import ConfigFile, read_configuration


def release(context: typer.Context, config: ConfigFile = None) -> None:
    """Run the release service. Any setting may follow as --section.key value."""
    settings = read_configuration(config, context.args).settings
    begin_service(settings, service="release", title="reef: release")
    from deploy.releasing import run_releases  # noqa: PLC0415 - lakeFS's client is not needed for help

    run_releases(settings)
