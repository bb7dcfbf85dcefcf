"""How an attempt ends: what a task may return or raise, and the closed list of outcomes.

A task returns its output or `Again`; it raises `RetryAfter`, `TerminalError` or anything else.
`execution` maps each of these to exactly one `Outcome`; `reporting` turns an outcome into the
report on the wire. Nothing else ends an attempt.
"""

from datetime import timedelta

from msgspec import Struct

from towpath_protocol.reports import ReleaseReason
from towpath_worker.values import JsonLike


class Again(Struct, frozen=True):
    """Returned by a task: run this step again later, as a new iteration.

    `after` is the wait, a `timedelta` or seconds; None leaves it to the step's `repeat.delay`.
    Raises ValueError when it is negative.
    """

    after: timedelta | float | None = None

    def __post_init__(self) -> None:
        after_ms = self.after_ms
        if after_ms is not None and after_ms < 0:
            raise ValueError("Again(after=...) must not be negative")

    @property
    def after_ms(self) -> int | None:
        """The wait in milliseconds, or None."""
        return None if self.after is None else _milliseconds(self.after)


class TerminalError(Exception):
    """Raised by a task: this failure is final, no retry would help.

    `type` is the error type that `retry.only` and `retry.never` of a definition match; its default
    is the name of the class, so that a subclass names its own type. `details` is any JSON value.
    """

    def __init__(
        self,
        message: str = "",
        *,
        type: str | None = None,  # noqa: A002 -- the word of the wire
        details: JsonLike = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.type = type or self.__class__.__name__
        self.details = details


class RetryAfter(Exception):  # noqa: N818 -- reads as what it asks for
    """Raised by a task: try again, and not before `seconds` (or a `timedelta`) have passed.

    It spends an attempt like every failure; the wait overrides the step's backoff. Raises
    ValueError when the wait is negative. `type` and `details` are those of `TerminalError`.
    """

    def __init__(
        self,
        seconds: timedelta | float,
        message: str = "",
        *,
        type: str | None = None,  # noqa: A002 -- the word of the wire
        details: JsonLike = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_ms = _milliseconds(seconds)
        if self.retry_after_ms < 0:
            raise ValueError("RetryAfter(seconds) must not be negative")
        self.message = message or "the task asked to be tried again later"
        self.type = type or self.__class__.__name__
        self.details = details


class Completed(Struct, frozen=True, kw_only=True):
    """The task returned. `output` is JSON text. `again` is what it asked for, if it did."""

    output: bytes
    again: Again | None = None


class Failed(Struct, frozen=True, kw_only=True):
    """The task raised, or what it returned is no legal output. `details` is JSON text."""

    type: str
    message: str
    retryable: bool = True
    details: bytes | None = None
    stack: str | None = None
    retry_after_ms: int | None = None


class Released(Struct, frozen=True, kw_only=True):
    """The attempt is given back: it is dispatched again and spends nothing."""

    reason: ReleaseReason
    after_ms: int | None = None


class Dropped(Struct, frozen=True, kw_only=True):
    """Nothing is reported: the engine has closed this attempt. `why` is for the log."""

    why: str


Outcome = Completed | Failed | Released | Dropped
"""The closed list; match it and end with `assert_never`."""


def _milliseconds(value: timedelta | float) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return round(seconds * 1000)
