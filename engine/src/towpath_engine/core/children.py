"""Child runs: started, awaited, and what becomes of their step.

The step waits until its child has settled, or, of a detached one, until it is there: so no child
that was asked for is lost, and one that can't be started fails its step. Of the messages between
the two runs the core knows nothing: it asks by effects and is told by ChildSettled.
"""

from typing import Final

from msgspec.structs import replace

from towpath_engine.core import failures
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import RunSpec
from towpath_engine.core.effects import StartChild, Verdict
from towpath_engine.core.events import ChildSettled
from towpath_engine.core.expressions.interface import unusable
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.paths import place_of
from towpath_engine.core.payloads import remember_child
from towpath_engine.core.scope import Scope
from towpath_engine.core.settling import NULL, complete_step, fail_step
from towpath_engine.core.states import RunStatus, WaitReason
from towpath_engine.core.transitions import StepChange
from towpath_protocol import codec
from towpath_protocol.errors import ProtocolError
from towpath_protocol.ids import check_key

DEPTH_MAX: Final = 100
"""Runs that wait for each other in a chain: without an end, a workflow could await itself."""

_TYPES: Final = {
    RunStatus.CANCELLED: failures.CHILD_CANCELLED,
    RunStatus.TIMED_OUT: failures.CHILD_TIMED_OUT,
}


def begin(changes: Changes, step: Step, spec: RunSpec) -> None:
    """Ask for the child run, and wait for it. Raises ExpressionFailed, before anything has changed.

    A step that has its input keeps it: one that is retried, or that an operator gave another.
    """
    key = _key(changes, step, spec)
    given = step.input
    if given is None and spec.input is not None:
        given = spec.input.render(Scope(changes, step))
    size_max = changes.run.limits.payload_bytes_max
    if given is not None and len(given) > size_max:
        fail_step(changes, step, failures.too_large("the input", len(given), size_max))
        return
    if not spec.detached and changes.run.depth + 1 >= DEPTH_MAX:
        failure = Failure(
            type=failures.CHILD_NOT_STARTED,
            message=f"{DEPTH_MAX} runs wait for each other in a chain, which is the limit",
            retryable=False,
        )
        fail_step(changes, step, failure)
        return
    child = changes.new_child(step)
    waiting = replace(
        step, input=given, child_run_id=child, child_key=key, waiting_for=WaitReason.CHILD
    )
    facts = {
        "for": WaitReason.CHILD.value,
        "child_run_id": child,
        "workflow": spec.workflow,
        "detached": spec.detached,
    }
    changes.move(waiting, StepChange.WAITING, facts)
    changes.emit(StartChild(path=step.path, child_run_id=child))


def _key(changes: Changes, step: Step, spec: RunSpec) -> str | None:
    """The key that the child is to have. Raises ExpressionFailed when it is none."""
    if spec.key is None:
        return None
    text = spec.key.render(Scope(changes, step))
    value: object = codec.loads(text)
    if value is None:
        return None
    field = f"steps.{place_of(step.path)}.run.key"
    if not isinstance(value, str):
        raise unusable(text, field, "the value is neither text nor null")
    try:
        return check_key(value, field)
    except ProtocolError as error:
        raise unusable(text, field, str(error)) from error


def settled(changes: Changes, event: ChildSettled) -> Verdict:
    """The child run has settled, is there, or can't be started: so its step settles. Stale when no
    step waits for it (any more)."""
    step = changes.step_of_child(event.child_run_id)
    if step is None:
        return Verdict.STALE
    spec = changes.definition_of(step.path).spec
    assert isinstance(spec, RunSpec), "only a run step waits for a child"
    is_there = event.status is not RunStatus.PENDING or event.failure is None
    if event.status is RunStatus.PENDING and is_there and not spec.detached:
        return Verdict.IGNORED
    remember_child(changes, event)
    if spec.detached and is_there:
        complete_step(changes, step, codec.dumps({"run_id": event.child_run_id}))
    elif event.status is RunStatus.COMPLETED:
        # The child has kept to the limits of an output.
        complete_step(changes, step, NULL if event.output is None else event.output)
    else:
        fail_step(changes, step, _failure(event))
    return Verdict.APPLIED


def _failure(event: ChildSettled) -> Failure:
    """Why the step fails; what the child failed of is in its details."""
    error = event.failure
    if event.status is RunStatus.PENDING:
        assert error is not None, "a child that is there is no failure"
        return error
    told = "" if error is None else f": {error.type}: {error.message}"
    details = {
        "run_id": event.child_run_id,
        "status": event.status.value,
        "error": None if error is None else failures.to_value(error),
    }
    return Failure(
        type=_TYPES.get(event.status, failures.CHILD_FAILED),
        message=f"the child run {event.child_run_id} is {event.status.value}{told}",
        details=codec.dumps(details),
    )
