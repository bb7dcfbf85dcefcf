"""Every operation in every status of a run, as one table: the core answers by it, the tests walk
it, docs/operations-table.md is generated from it.

A row is total: it says for each status what the operation does, or the code with which it is
refused. A cancelled or timed out run keeps what became of its undoing beside its status; where that
counts more, `UNDONE` says so.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from towpath_engine.core.states import LIVE_RUN, SETTLED_RUN, RunStatus
from towpath_protocol.errors import ErrorCode


class Operation(StrEnum):
    """What somebody may want of a run, and what may come in late."""

    SIGNAL = "run.signal"
    CANCEL = "run.cancel"
    PAUSE = "run.pause"
    RESUME = "run.resume"
    RETRY = "run.retry"
    REDRIVE = "run.redrive"
    RESTART = "run.restart"
    PURGE = "run.purge"
    RESULT = "run.result"
    REPORT = "a report with an old token"
    TIMER = "a timer that is not due (any more)"


class Effect(StrEnum):
    """What became of an operation."""

    DONE = "done"
    """It changes the run, or answers what was asked."""
    QUIET = "quiet"
    """Nothing changes, and the answer is a success."""
    REFUSED = "refused"
    """Nothing changes, and the answer is an error."""
    STALE = "stale"
    """Nothing changes; the message is counted and forgotten."""


class Answer(Struct, frozen=True, kw_only=True):
    """What an operation does in one status. `code` is given exactly when it is refused."""

    effect: Effect
    text: str
    code: ErrorCode | None = None


def _does(text: str) -> Answer:
    return Answer(effect=Effect.DONE, text=text)


def _quiet(text: str) -> Answer:
    return Answer(effect=Effect.QUIET, text=text)


def _refused(code: ErrorCode) -> Answer:
    return Answer(effect=Effect.REFUSED, text="refused", code=code)


REVIVABLE: Final = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT})
"""The statuses from which a settled run can go on, unless its steps were undone."""

_GOES_ON: Final = _does("the run goes on from the step that failed or was cut off")
_GOES_ON_UNDOING: Final = _does("the run goes on undoing, with the undo that failed")
_GOES_BACK: Final = _does("the run goes on from the step that is named")
_REPLAYED: Final = _does("a new run with the same input, key, tags, priority and context")


def _row(
    live: Answer, settled: Answer, others: Mapping[RunStatus, Answer]
) -> dict[RunStatus, Answer]:
    return {
        **dict.fromkeys(LIVE_RUN, live),
        **dict.fromkeys(SETTLED_RUN, settled),
        **others,
    }


_UNDONE: Final = _refused(ErrorCode.ALREADY_COMPENSATED)


def _revival(goes_on: Answer, undoing_failed: Answer) -> dict[RunStatus, Answer]:
    return _row(
        _refused(ErrorCode.RUN_NOT_SETTLED),
        _refused(ErrorCode.NOT_RETRYABLE),
        {
            **dict.fromkeys(REVIVABLE, goes_on),
            RunStatus.COMPENSATED: _UNDONE,
            RunStatus.COMPENSATION_FAILED: undoing_failed,
        },
    )


_SETTLED: Final = _refused(ErrorCode.RUN_SETTLED)
_LIVE: Final = _refused(ErrorCode.RUN_NOT_SETTLED)

OPERATIONS: Final[Mapping[Operation, Mapping[RunStatus, Answer]]] = {
    Operation.SIGNAL: _row(_does("a wait takes it, or it is kept for one"), _SETTLED, {}),
    Operation.CANCEL: _row(
        _does("the run is cancelled; with `compensate` its steps are undone first"),
        _SETTLED,
        {
            RunStatus.CANCELLED: _quiet("it stays cancelled"),
            RunStatus.COMPENSATING: _refused(ErrorCode.COMPENSATING),
        },
    ),
    Operation.PAUSE: _row(_does("nothing new of the run is dispatched"), _SETTLED, {}),
    Operation.RESUME: _row(
        _does("what its pause held goes on; `changed` says if there was one"), _SETTLED, {}
    ),
    Operation.RETRY: _revival(_GOES_ON, _GOES_ON_UNDOING),
    Operation.REDRIVE: _revival(_GOES_BACK, _UNDONE),
    Operation.RESTART: _row(_LIVE, _REPLAYED, {}),
    Operation.PURGE: _row(_LIVE, _does("the run and all that belongs to it is deleted"), {}),
    Operation.RESULT: _row(
        _does("waits until the run settles, or says that it has not"),
        _does("output or error of the run"),
        {},
    ),
    Operation.REPORT: _row(
        Answer(effect=Effect.STALE, text="nothing"), Answer(effect=Effect.STALE, text="nothing"), {}
    ),
    Operation.TIMER: _row(_quiet("nothing"), _quiet("nothing"), {}),
}
"""Operation → status of the run → what happens."""

assert all(row.keys() == set(RunStatus) for row in OPERATIONS.values()), "every row is total"
assert OPERATIONS.keys() == set(Operation), "every operation has a row"


UNDONE: Final[Mapping[Operation, Mapping[RunStatus, Answer]]] = {
    Operation.RETRY: {
        RunStatus.COMPENSATED: _UNDONE,
        RunStatus.COMPENSATION_FAILED: _GOES_ON_UNDOING,
    },
    Operation.REDRIVE: {
        RunStatus.COMPENSATED: _UNDONE,
        RunStatus.COMPENSATION_FAILED: _UNDONE,
    },
}
"""Operation → what became of the undoing (`Run.compensation`) → what happens, whatever the status
is: a run whose steps were undone has nothing to go on from."""


def answer_of(
    operation: Operation, status: RunStatus, compensation: RunStatus | None = None
) -> Answer:
    """What the operation does to a run in this status, with this compensation."""
    undone = UNDONE.get(operation, {})
    if compensation is not None and compensation in undone:
        return undone[compensation]
    return OPERATIONS[operation][status]


def refusal_of(
    operation: Operation, status: RunStatus, compensation: RunStatus | None = None
) -> ErrorCode | None:
    """The code with which the operation is refused then; None: it is not."""
    return answer_of(operation, status, compensation).code
