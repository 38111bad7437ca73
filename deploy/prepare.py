"""Shell: everything that an embedded stack needs is brought into the cache, at once where that helps.

Run by deploy/setup.sh as `python -m deploy.prepare`; in seconds when all is there. Starts nothing.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.text import Text

from deploy.embedded.engine_environment import find_device, prepare_engine_environment
from deploy.embedded.kafka import Kafka, KafkaOptions
from deploy.embedded.lakefs import Lakefs, LakefsOptions
from deploy.embedded.model import PREPARED_MODELS, prepare_model
from deploy.progress import ProgramBoard
from deploy.settings import read_cache_dir
from deploy.stack_state import ProgramState
from schemas.errors import ReefError

_POLL_S = 0.2


def main() -> None:
    """Prepare all, show how it goes, and exit with 1 when something failed."""
    errors = prepare_all(_works(read_cache_dir()))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for name, error in errors.items():
        console.print(Text(f"{name}: {error}", style="red"))
    if errors:
        console.print("`reef doctor` looks at the whole machine")
        raise SystemExit(1)


def prepare_all(works: Mapping[str, Callable[[], object]]) -> dict[str, ReefError]:
    """Do all works side by side; give what failed, by name."""
    with ThreadPoolExecutor(len(works)) as pool, ProgramBoard(starting="being made …") as board:
        futures = {name: pool.submit(work) for name, work in works.items()}
        while not all(future.done() for future in futures.values()):
            board.show({name: _state(future) for name, future in futures.items()})
            time.sleep(_POLL_S)
        board.show({name: _state(future) for name, future in futures.items()})
    return {name: error for name, future in futures.items() if (error := _error(future)) is not None}


def _works(cache_dir: Path) -> dict[str, Callable[[], object]]:
    """Name what is prepared. Kafka and lakeFS need only their `prepare`: no port, no state folder."""
    nowhere = cache_dir / "no-state"
    return {
        "Kafka's jars": Kafka(KafkaOptions(state_dir=nowhere, cache_dir=cache_dir, port=1)).prepare,
        "lakeFS": Lakefs(LakefsOptions(state_dir=nowhere, cache_dir=cache_dir, port=1)).prepare,
        "engine": lambda: prepare_engine_environment(find_device(), cache_dir),
        "models": lambda: [prepare_model(name, cache_dir) for name in PREPARED_MODELS],
    }


def _state(future: Future[object]) -> ProgramState:
    if not future.done():
        return "starting"
    return "ready" if _error(future) is None else "failed"


def _error(future: Future[object]) -> ReefError | None:
    """Give an expected failure; anything else is a bug and is raised."""
    error = future.exception()
    if error is None or isinstance(error, ReefError):
        return error
    raise error


if __name__ == "__main__":
    main()
