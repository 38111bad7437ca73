"""Shell: write the golden files of schema versions that have none yet; review and commit them."""

import json
import sys
from pathlib import Path

from schemas.codec import encode
from schemas.contract import newest_versions
from schemas.events import EVENT_TYPES
from tests.builders import BUILDERS
from tests.golden import plain

FOLDER = Path(__file__).parent


def main() -> None:
    """Add what is missing."""
    for event_type in EVENT_TYPES:
        newest = newest_versions()[event_type.__name__]
        path = FOLDER / f"{newest.event}.v{newest.version}.json"
        if path.exists():
            continue
        event = BUILDERS[event_type]()
        golden = {"bytes": encode(event).hex(), "event": plain(event)}
        path.write_text(json.dumps(golden, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        sys.stdout.write(f"added {path.name}: review it, commit it, never change it\n")


main()
