"""Shell: a whole gateway in a process of its own; arguments: broker, folder, scenario, engine."""

import sys
from pathlib import Path

from schemas.bus import KafkaAccess
from schemas.ids import ScenarioName
from tests.integration.keeping.rig import a_decided_scenario, running_keeping


def main(bootstrap: str, folder: str, scenario: str, engine_url: str) -> None:
    """Serve, and say where on standard output."""
    decided = a_decided_scenario(ScenarioName(scenario))
    access = KafkaAccess(bootstrap=bootstrap)
    with running_keeping(access, Path(folder), scenarios=[decided], engine_urls=[engine_url]) as rig:
        sys.stdout.write(f"\nat {rig.url}\n")  # on a line of its own: a log line may be half written
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
