"""The log of one attempt: ordinary `logging`, and a copy that goes into the attempt's report.

The copy is bounded in bytes. The newest lines are kept; a mark at the front says how many were cut.
"""

import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType
from typing import Final

import msgspec
from msgspec import Raw

from towpath_protocol.reports import LogLine
from towpath_worker.clock import wall_text
from towpath_worker.values import InvalidValueError, to_json

LINE_OVERHEAD_BYTES: Final = 100
FIELDS_BYTES_MAX: Final = 4_096
FIELDS_MAX: Final = 100
FIELD_LENGTH_MAX: Final = 200

STANDARD_FIELDS: Final = frozenset(
    (*logging.LogRecord("", 0, "", 0, "", (), None).__dict__, "message", "asctime", "taskName")
)
"""What every record of `logging` has; the rest came by `extra`."""

FACT_NAMES: Final = ("run_id", "step", "attempt")
"""What a record says about the attempt it belongs to."""

ExcInfo = (
    bool
    | tuple[type[BaseException], BaseException, TracebackType | None]
    | tuple[None, None, None]
    | BaseException
    | None
)
"""What `logging` takes as `exc_info`."""


class AttemptLog:
    """Lines of one attempt, at most `bytes_max` of JSON. Safe to use from many threads.

    `facts`, by FACT_NAMES, say which attempt; the run's log knows that without them.
    """

    def __init__(self, bytes_max: int, facts: Mapping[str, object] | None = None) -> None:
        self.facts = facts or {}
        # Room for the mark.
        self._bytes_max = max(LINE_OVERHEAD_BYTES, bytes_max - 2 * LINE_OVERHEAD_BYTES)
        self._lines: deque[tuple[LogLine, int]] = deque()
        self._bytes = 0
        self._cut = 0
        self._lock = threading.Lock()
        self.on_line: Callable[[LogLine], None] | None = None
        """Called with every line that is added, whole; for the worker."""

    def add(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        """Append a line; older ones make room. Never raises for what it is given."""
        line = LogLine(
            at=wall_text(), level=level, message=clean_text(message), fields=fields_json(fields)
        )
        size = len(msgspec.json.encode(line)) + 1
        if size > self._bytes_max:
            # Half, since a character may be six bytes once it is escaped.
            kept = line.message.encode()[: self._bytes_max // 6].decode(errors="ignore")
            line = LogLine(at=line.at, level=level, message=kept + " [line cut]")
            size = len(msgspec.json.encode(line)) + 1
        if self.on_line is not None:
            self.on_line(line)
        with self._lock:
            self._lines.append((line, size))
            self._bytes += size
            while self._bytes > self._bytes_max and len(self._lines) > 1:
                _, gone = self._lines.popleft()
                self._bytes -= gone
                self._cut += 1

    def lines(self) -> tuple[LogLine, ...]:
        """What goes into the report, oldest first."""
        with self._lock:
            kept = tuple(line for line, _ in self._lines)
            cut = self._cut
        if cut == 0:
            return kept
        mark = LogLine(at=kept[0].at, level="warning", message=f"[{cut} earlier lines were cut]")
        return (mark, *kept)


class AttemptLogger(logging.LoggerAdapter[logging.Logger]):
    """A `logging` adapter whose lines also go into the attempt's log, whatever the log level.

    Names in `extra` become fields of the line.
    """

    def __init__(self, logger: logging.Logger, log: AttemptLog) -> None:
        super().__init__(logger, dict(log.facts))
        self._attempt_log = log

    def log(
        self,
        level: int,
        msg: object,
        *args: object,
        exc_info: ExcInfo = None,
        stack_info: bool = False,
        stacklevel: int = 1,
        extra: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        """Log a line; also what `info`, `warning`, `exception` and the others call."""
        text = _message(msg, args) + traceback_of(exc_info)
        self._attempt_log.add(logging.getLevelName(level).lower(), text, extra or {})
        super().log(
            level,
            msg,
            *args,
            exc_info=exc_info,
            stack_info=stack_info,
            stacklevel=stacklevel + 1,
            extra={**(self.extra or {}), **_allowed(extra or {})},
            **kwargs,
        )

    def process(
        self, msg: object, kwargs: MutableMapping[str, object]
    ) -> tuple[object, MutableMapping[str, object]]:
        """Leave the record as `log` made it: the attempt's facts are in its `extra`."""
        return msg, kwargs


def _allowed(extra: Mapping[str, object]) -> dict[str, object]:
    """Without the names that `logging` refuses; the attempt's log has them all the same."""
    return {name: value for name, value in extra.items() if name not in STANDARD_FIELDS}


def _message(msg: object, args: tuple[object, ...]) -> str:
    record = logging.LogRecord("", 0, "", 0, msg, args, None)
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{msg} {args}"


def traceback_of(exc_info: ExcInfo) -> str:
    """The traceback, on lines of its own; empty when there is none."""
    match exc_info:
        case None | False | (None, None, None):
            return ""
        case BaseException():
            error: BaseException | None = exc_info
        case True:
            error = sys.exc_info()[1]
        case (_, error, _):
            pass
    return "" if error is None else "\n" + "".join(traceback.format_exception(error))


def fields_json(fields: Mapping[str, object]) -> Raw | None:
    """The fields as a JSON object: what is no JSON as its repr, what is too much left out."""
    if not fields:
        return None
    try:
        return Raw(to_json(dict(fields), bytes_max=FIELDS_BYTES_MAX, field="fields"))
    except InvalidValueError:
        pass
    kept: dict[str, Raw] = {}
    left = FIELDS_BYTES_MAX
    for name, value in list(fields.items())[:FIELDS_MAX]:
        key, text = clean_text(str(name))[:FIELD_LENGTH_MAX], _field(value)
        left -= len(text) + len(msgspec.json.encode(key)) + 2
        if left < 0:
            break
        kept[key] = Raw(text)
    return Raw(msgspec.json.encode(kept))


def _field(value: object) -> bytes:
    try:
        return to_json(value, bytes_max=FIELDS_BYTES_MAX // 2, field="field")
    except InvalidValueError:
        pass
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 -- a log call never fails for what it is given
        text = f"<{type(value).__qualname__}, whose repr raised {type(error).__qualname__}>"
    return msgspec.json.encode(clean_text(text)[:FIELD_LENGTH_MAX])


def clean_text(text: str) -> str:
    """The text without what JSON must not carry: NUL and lone surrogates."""
    return text.replace("\0", "�").encode(errors="replace").decode()
