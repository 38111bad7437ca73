"""Shell: one process for each rank, and all of them end together.

Not a supervisor: when a rank is lost the others end too, and whoever started this starts it again; the ranks
then go on from the checkpoint.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from time import monotonic, sleep
from types import FrameType

import structlog

from trainers.settings import RankFacts, rank_environment

STOP_S_MAX = 30.0
POLL_S = 0.2

_log = structlog.get_logger()


def run_ranks(argv: Sequence[str], num_ranks: int) -> int:
    """Run the same command as every rank; give the first exit code that is not zero, or zero."""
    port = _free_port()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    children = [
        subprocess.Popen(
            argv,
            env=rank_environment(
                RankFacts(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=num_ranks, MASTER_PORT=port)
            ),
        )
        for rank in range(num_ranks)
    ]
    try:
        return _first_end(children)
    finally:
        _end(children)


def this_command() -> list[str]:
    """Give the command line of this process."""
    return [sys.executable, *sys.orig_argv[1:]]


def _first_end(children: Sequence["subprocess.Popen[bytes]"]) -> int:
    """Wait until all have ended well or one has not."""
    while True:
        codes = [child.poll() for child in children]
        failed = [(rank, code) for rank, code in enumerate(codes) if code]
        if failed:
            rank, code = failed[0]
            _log.warning("rank_lost", rank=rank, exit_code=code)
            return abs(code)
        if all(code == 0 for code in codes):
            return 0
        sleep(POLL_S)


def _end(children: Sequence["subprocess.Popen[bytes]"]) -> None:
    for child in children:
        if child.poll() is None:
            child.terminate()
    until_s = monotonic() + STOP_S_MAX
    for child in children:
        try:
            child.wait(max(0.0, until_s - monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _leave(number: int, frame: FrameType | None) -> None:
    """End by the ordinary road, so that the children end first."""
    raise SystemExit(0)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
