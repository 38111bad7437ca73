"""Shell: what every service of ours does first: its logs, its title, and a look at the contract of events.

Not its composition, which deploy/commands has.
"""

from setproctitle import setproctitle

from schemas.contract import schema_versions
from schemas.logs import configure_logs
from schemas.settings import Settings


def begin_service(settings: Settings, *, service: str, title: str) -> None:
    """Begin before anything is opened or started. Raises RejectedError naming a corrupt `.avsc`."""
    setproctitle(title)
    configure_logs(
        service=service,
        log_format=settings.observability.log_format,
        level=settings.observability.log_level,
    )
    schema_versions()
