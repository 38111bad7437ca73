"""Shell: a process that keeps reports until it is killed, and says which ones it was told are durable."""

import asyncio
import sys
from itertools import count
from pathlib import Path

import uvloop

from schemas.bus import KafkaAccess
from tests.contract.outbox.opened import a_numbered_report, opened_outbox

NUM_CLIENTS = 16
NUM_ROUTES = 24


async def keep(bootstrap: str, folder: Path, scenario: str, first: int) -> None:
    """Keep reports numbered from `first` on, a line on standard output for each that is durable."""
    numbers = count(first)
    async with opened_outbox(KafkaAccess(bootstrap=bootstrap), folder) as outbox:

        async def client() -> None:
            while True:
                number = next(numbers)
                await outbox.append(a_numbered_report(scenario, number, NUM_ROUTES))
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()

        await asyncio.gather(*[client() for _ in range(NUM_CLIENTS)])


if __name__ == "__main__":
    uvloop.run(keep(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
