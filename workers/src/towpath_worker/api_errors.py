"""What a call to the engine may fail with, and what to do about it.

Two families. `ApiError`: the engine answered no; its subclasses say which kind of no, so that a
program catches what it can handle. `TransportError` (in `towpath_worker.transport`): nobody
answered; its subclass `OutcomeUnknownError` is for a request that changes something.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from towpath_protocol.errors import ERRORS, ErrorCode
from towpath_worker.transport import NoAnswerError
from towpath_worker.values import Json


class ApiError(Exception):
    """The engine refused a request.

    `code` is a word from the closed list in PROTOCOL.md, `status` its HTTP-like number, `details`
    whatever the engine added, `message` what the engine said, and `fix` what to do (None where
    nothing general helps). The text of the exception has message, fix and code.
    """

    def __init__(self, code: str, message: str, details: Json = None, *, status: int = 0) -> None:
        self.code = code
        self.message = message
        self.details = details
        self.status = status
        self.fix = _fix(code, details)
        # The engine's sentence has the fix already where it knew one.
        advice = f"; {self.fix}" if self.fix and self.fix not in message else ""
        super().__init__(f"{message}{advice} ({code})")


class InvalidRequestError(ApiError):
    """400, 413, 422: the request breaks a rule, and would do so again."""


class DefinitionRefusedError(InvalidRequestError):
    """A definition has faults; `faults` lists all of them."""

    @property
    def faults(self) -> tuple["Fault", ...]:
        """Every fault with its place in the document."""
        try:
            return msgspec.convert(self.details, _Faults).faults
        except msgspec.ValidationError:
            return ()


class NotFoundError(ApiError):
    """404: there is no such run, key, workflow, version, step, queue or dead letter."""


class ConflictError(ApiError):
    """409: the state does not allow it now, as `run_settled` or `key_conflict`."""


class OverloadedError(ApiError):
    """429: too much at once, for as long as the client went on trying. Nothing was done."""


class EngineError(ApiError):
    """500 and what else is no fault of the caller: the engine or its Postgres failed."""


class Fault(Struct, frozen=True, kw_only=True):
    """One fault of a definition: `path` is its place in the document, empty for the whole."""

    path: str
    message: str
    code: str = ""


class OutcomeUnknownError(NoAnswerError):
    """A request that changes something was sent, and no answer came: it may still happen.

    `verb` is what was asked for. Repeating the call with `request_id` (of a signal: `message_id`)
    finds out, and does nothing twice; where it is None, look at the run first.
    """

    def __init__(self, message: str, *, verb: str, request_id: str | None) -> None:
        super().__init__(message)
        self.verb = verb
        self.request_id = request_id


def api_error(code: str, message: str, details: Json = None, *, status: int = 0) -> ApiError:
    """The exception of an error answer, by its code and status; new codes go by the status."""
    if code == ErrorCode.DEFINITION_REFUSED:
        return DefinitionRefusedError(code, message, details, status=status)
    if not status and code in ERRORS:
        # An item of a start-many has no status of its own.
        status = ERRORS[ErrorCode(code)].status
    kind = _BY_STATUS.get(status, EngineError if status >= 500 else InvalidRequestError)
    return kind(code, message, details, status=status)


class _Faults(Struct, frozen=True):
    faults: tuple[Fault, ...]


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    404: NotFoundError,
    409: ConflictError,
    429: OverloadedError,
}

_FIXES: Final[Mapping[str, str]] = {
    ErrorCode.UNKNOWN_VERB: "the engine is older than this client: upgrade the engine",
    ErrorCode.WORKFLOW_NOT_FOUND: "deploy it first; `towpath workflows` lists what there is",
    ErrorCode.VERSION_NOT_FOUND: "`towpath workflows` shows the newest version",
    ErrorCode.RUN_NOT_FOUND: "`towpath list` shows the runs; a purged run is gone",
    ErrorCode.STEP_NOT_FOUND: "`towpath get` shows the steps of the run",
    ErrorCode.KEY_NOT_FOUND: "a key belongs to a live run only; `towpath list --key` shows settled",
    ErrorCode.QUEUE_NOT_FOUND: "`towpath queues` lists the queues",
    ErrorCode.DEAD_LETTER_NOT_FOUND: "`towpath dead-letters list` shows what is kept",
    ErrorCode.KEY_CONFLICT: "use another key, or on_conflict existing or replace",
    ErrorCode.REQUEST_CONFLICT: "use a new request_id for a new request",
    ErrorCode.RUN_NOT_SETTLED: "wait for it, or cancel it first",
    ErrorCode.ALREADY_COMPENSATED: "start it anew with restart",
    ErrorCode.OVERLOADED: "send less at once",
    ErrorCode.UNAVAILABLE: "is Postgres up? see the engine's log",
}


class _Fix(Struct, frozen=True):
    fix: str


def _fix(code: str, details: Json) -> str | None:
    try:
        return msgspec.convert(details, _Fix).fix
    except msgspec.ValidationError:
        return _FIXES.get(code)
