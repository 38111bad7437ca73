"""Shell: the canonical line of each request, written as cheaply as it is often.

The fields and forms are those of all other lines (schemas/logs.py); only the road to standard error is
shorter: structlog's chain costs as much as a tenth of the request itself.
"""

import sys
import time
from typing import BinaryIO, Protocol

import orjson
import structlog

from schemas.logs import LogFormat


class RequestLog(Protocol):
    """Writes canonical lines, and the rare line about a bug."""

    def answered(self, fields: dict[str, object]) -> None:
        """Write that a request was answered."""

    def failed(self, **fields: object) -> None:
        """Write that a request met a bug of ours, with its trace."""


class StderrRequestLog:
    """Writes to standard error, or wherever told."""

    def __init__(self, log_format: LogFormat, *, is_quiet: bool = False, out: BinaryIO | None = None) -> None:
        """Take the form of the other lines; `is_quiet` leaves canonical lines out."""
        self._is_quiet = is_quiet
        self._render = _as_json if log_format == "json" else _as_text
        self._out = out or sys.stderr.buffer
        self._second = 0
        self._prefix = ""
        self._slow: structlog.stdlib.BoundLogger = structlog.get_logger()

    def answered(self, fields: dict[str, object]) -> None:
        """Write one line."""
        if self._is_quiet:
            return
        self._out.write(self._render(self._now(), fields))
        self._out.flush()

    def failed(self, **fields: object) -> None:
        """Write a bug's line by the common road."""
        self._slow.exception("request_failed", **fields)

    def _now(self) -> str:
        """Give the time as ISO 8601 in UTC, without building a date for every line."""
        second, micros = divmod(time.time_ns() // 1_000, 1_000_000)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{micros:06d}Z"


def _as_json(now: str, fields: dict[str, object]) -> bytes:
    line = {"event": "request_answered", "level": "info", "service": "gateway", "timestamp": now, **fields}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _as_text(now: str, fields: dict[str, object]) -> bytes:
    pairs = " ".join([f"{key}={_plain(value)}" for key, value in fields.items() if value is not None])
    return f"{now} [info     ] request_answered               {pairs}\n".encode("utf-8", "replace")


def _plain(value: object) -> str:
    """Give a value that stays within its line: a path may hold line ends, and much else."""
    text = str(value)
    return text if text.isprintable() else ascii(text)
