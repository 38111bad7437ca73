"""Runs in a process of its own, since niceness is never taken back."""

import os
import subprocess
import sys
from pathlib import Path

import reef_engine
from reef_engine.priority import NICENESS

PROGRAM = """
import os, threading
from queue import SimpleQueue
from reef_engine.priority import Starter

told = SimpleQueue()

def tell():
    told.put(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

rests = threading.Event()
before = threading.Thread(target=rests.wait, daemon=True)
before.start()
began = os.getpriority(os.PRIO_PROCESS, 0)
starter = Starter()
starter.let_others_yield()
starter.start(tell)
staging = told.get()
threading.Thread(target=tell).start()
print(staging - began, told.get() - began, os.getpriority(os.PRIO_PROCESS, before.native_id) - began)
"""


def test_what_stages_keeps_its_priority_where_what_computes_and_its_children_yield() -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(reef_engine.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["0", str(NICENESS), str(NICENESS)]
