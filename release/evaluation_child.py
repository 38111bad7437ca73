"""Shell: the child process in which an evaluator runs: a subject comes in, an answer goes out.

Whatever the evaluator raises ends this process with its trace on standard error.
"""

import os
import sys
from typing import Any

import orjson
from pydantic import TypeAdapter

from release.evaluation import Evaluator, Measured, Subject
from schemas.recipe import load_object

NICENESS = 15

_SUBJECT: TypeAdapter[Subject] = TypeAdapter(Subject)
_MEASURED: TypeAdapter[Measured] = TypeAdapter(Measured)


def main() -> None:
    """Evaluate one candidate."""
    os.nice(NICENESS)
    asked: dict[str, Any] = orjson.loads(sys.stdin.buffer.read())
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an evaluator prints is no answer
    evaluator: Evaluator = load_object(asked["path"])(asked["config"])
    measured = evaluator.evaluate(_SUBJECT.validate_python(asked["subject"]))
    answers.write(_MEASURED.dump_json(_MEASURED.validate_python(measured)))
    answers.close()


if __name__ == "__main__":
    main()
