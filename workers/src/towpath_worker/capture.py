"""What any library logs during an attempt, copied into that attempt's log.

A context variable says whose attempt a piece of code belongs to: asyncio tasks inherit it, and so
do the threads of plain functions. Threads that a task starts itself do not, unless it starts them
with `contextvars.copy_context().run`.
"""

import contextlib
import contextvars
import logging
import threading
from collections.abc import Generator, Mapping, MutableMapping
from typing import Final

from towpath_worker.logs import STANDARD_FIELDS, AttemptLog, traceback_of

_current: contextvars.ContextVar[AttemptLog | None] = contextvars.ContextVar(
    "towpath_attempt_log", default=None
)

OWN_LOGGERS: Final = ("towpath.worker", "towpath.task")
"""What the SDK says about itself is no line of an attempt; `context.logger` has written already."""


@contextlib.contextmanager
def into(log: AttemptLog) -> Generator[None]:
    """Inside, what this piece of code logs goes to `log` as well."""
    token = _current.set(log)
    try:
        yield
    finally:
        _current.reset(token)


def capture_structlog(
    _logger: object, method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """A processor of structlog: copies the event into the attempt's log and passes it on, with
    `run_id`, `step` and `attempt`.

    Put it before the renderer of a structlog that does not go through `logging` (what goes through
    `logging` is captured already).
    """
    log = _current.get()
    if log is not None:
        # What its renderer writes says which attempt it was; the run's log knows it.
        facts = {name: value for name, value in log.facts.items() if name not in event}
        fields = {name: value for name, value in event.items() if name not in _OF_STRUCTLOG}
        text = str(event.get("event", ""))
        exc_info = event.get("exc_info")
        if exc_info is True or isinstance(exc_info, BaseException):
            text += traceback_of(exc_info)
        elif "exception" in event:
            text += f"\n{event['exception']}"
        log.add(str(event.get("level", method)), text, fields)
        event.update(facts)
    return event


_OF_STRUCTLOG: Final = frozenset(("event", "level", "timestamp", "exc_info", "exception"))


class _Marking(logging.Filter):
    """Says of a record which attempt it belongs to; for the handlers of the program."""

    def filter(self, record: logging.LogRecord) -> bool:
        log = _current.get()
        if log is not None:
            for name, value in log.facts.items():
                record.__dict__.setdefault(name, value)
        return True


class _Handler(logging.Handler):
    """The one handler of this process, on the root logger while a worker serves."""

    def __init__(self, *, echoes: bool) -> None:
        super().__init__()
        self._echoes = echoes

    def emit(self, record: logging.LogRecord) -> None:
        if self._echoes and logging.getLogger().handlers == [self]:
            # Without another handler Python would have written warnings to stderr itself.
            last = logging.lastResort
            if last is not None and record.levelno >= last.level:
                last.handle(record)
        log = _current.get()
        if log is None or record.name.startswith(OWN_LOGGERS):
            return
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = f"{record.msg} {record.args}"
        log.add(
            record.levelname.lower(), text + traceback_of(record.exc_info), _fields(record, log)
        )


class _Installation:
    """How many workers of this process want the handler, and what the first one changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handler: _Handler | None = None
        self._marking = _Marking()
        self._marked: list[logging.Handler] = []
        self._count = 0

    def add(self, *, echoes: bool) -> None:
        with self._lock:
            self._count += 1
            if self._handler is None:
                self._handler = _Handler(echoes=echoes)
                self._marked = logging.getLogger().handlers[:]
                for handler in self._marked:
                    handler.addFilter(self._marking)
                logging.getLogger().addHandler(self._handler)

    def remove(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._handler is not None:
                logging.getLogger().removeHandler(self._handler)
                self._handler = None
                for handler in self._marked:
                    handler.removeFilter(self._marking)
                self._marked = []


_installation = _Installation()


def install(*, echoes: bool = True) -> None:
    """Capture from now on; calls add up. What the levels of the loggers let through is captured,
    and the root logger's handlers learn `run_id`, `step` and `attempt` of every record.

    `echoes`: warnings still go to stderr in a program that has not set up logging.
    """
    _installation.add(echoes=echoes)


def uninstall() -> None:
    """End what one `install` began; the last one removes the handler."""
    _installation.remove()


def _fields(record: logging.LogRecord, log: AttemptLog) -> Mapping[str, object]:
    extra: dict[str, object] = {
        name: value
        for name, value in record.__dict__.items()
        if name not in STANDARD_FIELDS and log.facts.get(name) is not value
    }
    return {"logger": record.name, **extra}
