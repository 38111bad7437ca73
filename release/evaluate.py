"""Shell: whether a candidate is any good: within limits at once, anything else in a child process.

The child has a deadline and low priority, and asks no gateway: evaluation never becomes experience. One that
raises, hangs, dies or speaks nonsense refuses the candidate; what it said is in the log's line.

Next: release/publish.py
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import orjson
import structlog
from pydantic import TypeAdapter, ValidationError

from release.evaluation import Measured, Subject, judge_metrics, read_bounds
from release.settings import child_environment
from schemas.events import VerdictReason
from schemas.ids import Sha256

METRIC_BOUNDS, PROMPT_SET = "metric_bounds", "prompt_set"
PROMPT_SET_PATH = "release.prompt_set:PromptSet"
CHILD = "release.evaluation_child"
SCORES_MAX = 64
"""Contents whose scores are kept; the oldest go."""
TAIL_CHARS = 2_000
FAILED = Measured(reasons=(VerdictReason.EVALUATOR_FAILED,))

_MEASURED: TypeAdapter[Measured] = TypeAdapter(Measured)
_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Evaluates(Protocol):
    """What the loop asks."""

    looks_at_files: bool
    """Whether the incumbent's files must be here."""

    async def measure(self, subject: Subject) -> Measured:
        """Give a refusal or none, never raise because of the candidate."""


class WithinBounds:
    """`metric_bounds`: the training step's own metrics, within limits."""

    looks_at_files = False

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read the limits. Raises RejectedError."""
        self._bounds = read_bounds(config)

    async def measure(self, subject: Subject) -> Measured:
        """Compare."""
        return judge_metrics(self._bounds, subject.metrics)


class InChild:
    """Any other evaluator, by dotted path."""

    looks_at_files = True

    def __init__(self, path: str, config: Mapping[str, Any], *, timeout_s: float) -> None:
        self._path, self._config, self._timeout_s = path, dict(config), timeout_s
        self._scores: dict[Sha256, Mapping[str, float]] = {}

    async def measure(self, subject: Subject) -> Measured:
        """Evaluate in a child process; what it measures of a content is remembered."""
        known = self._scores.get(subject.incumbent.content_sha256)
        measured = await self._run(replace(subject, incumbent_scores=known))
        self._remember(subject.incumbent.content_sha256, measured.baseline_metrics)
        self._remember(subject.candidate.content_sha256, measured.metrics)
        return measured

    def _remember(self, content: Sha256, scores: Mapping[str, float]) -> None:
        if scores:
            self._scores[content] = scores
        while len(self._scores) > SCORES_MAX:
            del self._scores[next(iter(self._scores))]

    async def _run(self, subject: Subject) -> Measured:
        asked = orjson.dumps(
            {"path": self._path, "config": self._config, "subject": asdict(subject)}, default=_plain
        )
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            CHILD,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(),
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                out, said = await child.communicate(asked)
        except TimeoutError:
            return self._failed(subject, f"nothing within {self._timeout_s:g} s")
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode != os.EX_OK:
            tail = said.decode(errors="replace")[-TAIL_CHARS:]
            return self._failed(subject, f"exit status {child.returncode}: {tail}")
        try:
            return _MEASURED.validate_json(out.splitlines()[-1] if out.strip() else b"")
        except ValidationError as error:
            return self._failed(subject, f"an answer with {error.error_count()} mistake(s)")

    def _failed(self, subject: Subject, got: str) -> Measured:
        content = subject.candidate.content_sha256
        _log.error("evaluator_failed", evaluator=self._path, content_sha256=content, detail=got)
        return FAILED


def evaluator_of(module: str, config: Mapping[str, Any], *, timeout_s: float) -> Evaluates:
    """Make the configured evaluator. Raises RejectedError."""
    if module == METRIC_BOUNDS:
        return WithinBounds(config)
    return InChild(PROMPT_SET_PATH if module == PROMPT_SET else module, config, timeout_s=timeout_s)


def _plain(value: object) -> str:
    assert isinstance(value, Path), value
    return str(value)
