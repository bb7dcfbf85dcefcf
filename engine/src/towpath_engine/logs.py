"""Logging: structlog's events and the standard library's records leave as one kind of line.

An event is a past-tense fact in snake_case (`step_dispatched`) with the glossary's keys
(`run_id step attempt worker_id queue`); it is never a sentence, so that it can be counted.
"""

import logging
import sys
from collections.abc import Callable
from typing import TextIO

import structlog
from structlog.typing import Processor

from towpath_engine.secrets import mask_secrets
from towpath_engine.settings import LogFormat, LogLevel

# Libraries say at INFO what is our business only when it goes wrong.
_QUIET_LIBRARIES = ("nats", "asyncpg", "asyncio")


class _Formatter(logging.Formatter):
    """Masks the secrets of a line when it is complete: keys, messages, tracebacks and all."""

    def __init__(self, inner: logging.Formatter, mask: Callable[[str], str]) -> None:
        super().__init__()
        self._inner = inner
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask(self._inner.format(record))


def configure_logs(
    *,
    level: LogLevel = "info",
    log_format: LogFormat = "json",
    stream: TextIO | None = None,
    mask: Callable[[str], str] = mask_secrets,
) -> None:
    """Send every log line of this process to `stream` (stderr), as JSON or readable text.

    Each line passes through `mask`, which takes secrets out of it. May be called again: the last
    call decides.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=_logger,
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    lines = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *_renderers(log_format, colors=out.isatty()),
        ],
    )
    handler.setFormatter(_Formatter(lines, mask))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)


def _logger(name: str = "towpath_engine") -> logging.Logger:
    """Not structlog's own factory: that replaces the class of every logger of the process."""
    return logging.getLogger(name)


def _renderers(log_format: LogFormat, *, colors: bool) -> list[Processor]:
    match log_format:
        case "json":
            return [
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False),
            ]
        case "console":
            # Plain: the other way shows local variables, settings among them.
            plain = structlog.dev.plain_traceback
            return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
