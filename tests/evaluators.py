"""Shell: evaluators of one's own, as an operator may name them: good, failing, hanging and dying ones."""

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from release.evaluation import Measured, Subject
from schemas.events import VerdictReason


class Scripted:
    """Does what its configuration says."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Keep the script."""
        self._config = config

    def evaluate(self, subject: Subject) -> Measured:
        """Act."""
        sys.stdout.write("what an evaluator prints is no answer\n")
        match self._config["does"]:
            case "raise":
                raise RuntimeError("the scorer has a bug")
            case "hang":
                signal.pause()
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "refuse":
                return Measured(reasons=(VerdictReason.WORSE_THAN_INCUMBENT,), metrics={"score": 0.25})
            case _:
                pass
        known = subject.incumbent_scores
        return Measured(
            metrics={"score": float(len(list(subject.candidate.folder.iterdir())))},
            baseline_metrics=known or {"score": 1.0, "niceness": float(os.nice(0))},
        )


def num_characters(prompt: Any, answer: str) -> float:
    """Score an answer by its length."""
    return float(len(answer))
