"""What the worker's command writes to stderr: lines for people, or one JSON object a line.

Both say of every line that a task logs, through whatever logger, which attempt it belongs to.
"""

import logging
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Raw

from towpath_worker.logs import (
    FACT_NAMES,
    STANDARD_FIELDS,
    clean_text,
    fields_json,
    traceback_of,
)

FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s"


class LogFormat(StrEnum):
    """The values of TOWPATH_LOG_FORMAT, which are the engine's."""

    CONSOLE = "console"
    JSON = "json"


class PlainFormatter(logging.Formatter):
    """For people: the attempt stands at the end of the message."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's name
        """See logging.Formatter."""
        found = record.__dict__
        facts = [f"{name}={found[name]}" for name in FACT_NAMES if name in found]
        return " ".join((super().formatMessage(record), *facts))


class JsonFormatter(logging.Formatter):
    """For machines: `timestamp`, `level`, `logger`, `event`, as the engine has them; the attempt
    and what came by `extra` as fields, `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": clean_text(record.getMessage()),
        }
        extra = {
            name: value for name, value in record.__dict__.items() if name not in STANDARD_FIELDS
        }
        fields = fields_json(extra)
        if fields is not None:
            line = {**msgspec.json.decode(fields, type=dict[str, Raw]), **line}
        if text := traceback_of(record.exc_info).lstrip():
            line["exception"] = clean_text(text)
        return msgspec.json.encode(line).decode()


def formatter(log_format: LogFormat) -> logging.Formatter:
    """How the lines look."""
    return JsonFormatter() if log_format is LogFormat.JSON else PlainFormatter()
