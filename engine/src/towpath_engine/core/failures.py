"""Failures that the engine itself finds, and the way of a failure between wire, state and reader.

The error types named here are those of the engine; a worker's own types are any other words.
"""

from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from towpath_engine.core.expressions.interface import ExpressionFailed
from towpath_engine.core.model import Failure
from towpath_protocol import codec
from towpath_protocol.failures import Failure as WireFailure

CHILD_CANCELLED: Final = "ChildCancelled"
CHILD_FAILED: Final = "ChildFailed"
CHILD_NOT_STARTED: Final = "ChildNotStarted"
CHILD_TIMED_OUT: Final = "ChildTimedOut"
EXPRESSION_ERROR: Final = "ExpressionError"
INVALID_OUTPUT: Final = "InvalidOutput"
NO_CHOICE: Final = "NoChoice"
NOT_RUN: Final = "NotRun"
REPEAT_LIMIT: Final = "RepeatLimit"
RUN_TOO_BIG: Final = "RunTooBig"
TIMEOUT: Final = "Timeout"
TOO_LARGE: Final = "TooLarge"
VISIT_LIMIT: Final = "VisitLimit"
WORKER_LOST: Final = "WorkerLost"

TYPE_LENGTH_MAX: Final = 256
MESSAGE_IN_FACTS_MAX: Final = 500
_TRIMMED: Final = " … (cut: the error was larger than the limit)"


def from_wire(failure: WireFailure) -> Failure:
    """What a worker reported, as the state keeps it."""
    return Failure(
        type=failure.type,
        message=failure.message,
        retryable=failure.retryable,
        details=None if failure.details is None else bytes(failure.details),
        stack=failure.stack,
    )


def to_wire(failure: Failure) -> WireFailure:
    """The failure as the next attempt is told it (`last_error` of a dispatch)."""
    return WireFailure(
        type=failure.type,
        message=failure.message,
        retryable=failure.retryable,
        details=None if failure.details is None else Raw(failure.details),
        stack=failure.stack,
    )


def to_value(failure: Failure) -> dict[str, object]:
    """The failure as expressions see it: {type, message, retryable, details, step, attempt}."""
    details: object = None if failure.details is None else codec.loads(failure.details)
    return {
        "type": failure.type,
        "message": failure.message,
        "retryable": failure.retryable,
        "details": details,
        "step": failure.step,
        "attempt": failure.attempt,
    }


def to_facts(failure: Failure) -> dict[str, object]:
    """The failure as history and announcements name it: type and the start of the message."""
    return {"error": {"type": failure.type, "message": failure.message[:MESSAGE_IN_FACTS_MAX]}}


def bounded(failure: Failure, bytes_max: int) -> Failure:
    """The failure in at most `bytes_max` bytes of text: stack, then details, then the end of the
    message are given up. A failure that is too big is still a failure."""
    kept = failure
    if len(kept.type) > TYPE_LENGTH_MAX:
        kept = replace(kept, type=kept.type[:TYPE_LENGTH_MAX])
    if _size(kept) > bytes_max:
        kept = replace(kept, stack=None)
    if _size(kept) > bytes_max:
        kept = replace(kept, details=None)
    if _size(kept) > bytes_max:
        # Four bytes is the longest code point in UTF-8, so this many of them always fit.
        room = max(0, bytes_max - len(kept.type.encode()) - len(_TRIMMED.encode())) // 4
        kept = replace(kept, message=kept.message[:room] + _TRIMMED)
    return kept


def _size(failure: Failure) -> int:
    details = 0 if failure.details is None else len(failure.details)
    stack = "" if failure.stack is None else failure.stack
    attached = "" if failure.attached is None else failure.attached
    texts = (failure.type, failure.message, stack, attached)
    return details + sum(len(text.encode()) for text in texts)


def from_expression(failed: ExpressionFailed) -> Failure:
    """An expression that could not be evaluated: never retried."""
    facts = {
        "field": failed.field,
        "expression": failed.expression,
        "position": failed.position,
        "reason": failed.reason,
    }
    return Failure(
        type=EXPRESSION_ERROR, message=str(failed), retryable=False, details=codec.dumps(facts)
    )


def timed_out(which: str, after_ms: int | None) -> Failure:
    """Type `Timeout`; `which` is attempt, dispatch, step, heartbeat, wait or run."""
    after = "" if after_ms is None else f" of {after_ms} ms"
    return Failure(
        type=TIMEOUT,
        message=f"the {which} timeout{after} has passed",
        details=codec.dumps({"timeout": which, "after_ms": after_ms}),
    )


def too_large(what: str, size: int, bytes_max: int) -> Failure:
    """Type `TooLarge`: the same again would be as large, so it is not retried."""
    return Failure(
        type=TOO_LARGE,
        message=f"{what} has {size} bytes, the limit is {bytes_max}",
        retryable=False,
    )
