"""Shell: structured logs: one canonical line a unit of work, ids and sizes only, never what people wrote.

Not a tracing system: ids are bound as context variables at the door, and everything below inherits them.
"""

import logging
import re
import sys
from typing import Literal

import structlog

LogFormat = Literal["console", "json"]
"""`console` for people, `json` for collectors."""


def configure_logs(*, service: str, log_format: LogFormat, level: str = "info") -> None:
    """Send structlog and the standard library's loggers to standard error in one form."""
    renderer = _renderer(log_format)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_is_news)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


_EACH_TRY = re.compile(r"aiokafka\b.*:(Unable connect to |Unable to update metadata )", re.DOTALL)


def _is_news(record: logging.LogRecord) -> bool:
    """Drop the line of every single try to connect: whoever waits says so once, and what for."""
    return _EACH_TRY.match(f"{record.name}:{record.msg}") is None


def _renderer(log_format: LogFormat) -> structlog.typing.Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer(sort_keys=True)
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
