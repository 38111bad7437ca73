"""One connection, many threads: a cancelled task leaves its thread at work, also while the outbox closes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gateway.outbox_rows import OutboxRows, row_of
from schemas.errors import UnavailableError
from tests.builders import an_inference

NUM_THREADS = 8
NUM_ROUNDS = 20


def use_until_closed(rows: OutboxRows, begin: threading.Barrier) -> str:
    """Use a connection again and again; say how that ended."""
    begin.wait()
    while True:
        try:
            rows.checkpoint("PASSIVE")
            rows.totals()
        except UnavailableError as error:
            return error.reason


def test_a_connection_that_threads_still_use_closes_in_its_turn(tmp_path: Path) -> None:
    for number in range(NUM_ROUNDS):
        rows = OutboxRows(tmp_path / f"{number}.db", durability="process", num_partitions=4)
        rows.prepare()
        rows.insert([row_of(an_inference())], now_us=1)
        begin = threading.Barrier(NUM_THREADS + 1)
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            users = [pool.submit(use_until_closed, rows, begin) for _ in range(NUM_THREADS)]
            begin.wait()
            rows.close()
            assert {user.result() for user in users} == {"outbox_unusable"}
