"""Coming to a step: visit limit, `when`, `delay`, then what its kind does.

Steps that need no worker are decided on the spot and put what follows them on the agenda, so that
hundreds of them cost one decision.
"""

from datetime import datetime
from typing import Final, assert_never

from msgspec.structs import replace

from towpath_engine.core import children, failures, undo_stack, waits, wholes
from towpath_engine.core.attempts import begin_iteration, wake_attempt
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import (
    ChoiceSpec,
    MapSpec,
    ParallelSpec,
    PassSpec,
    RunSpec,
    SleepSpec,
    StepDef,
    TaskSpec,
    WaitSpec,
)
from towpath_engine.core.expressions.interface import ExpressionFailed, unusable
from towpath_engine.core.instants import LATEST, plus_ms
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.paths import ROOT, place_of, upper_of
from towpath_engine.core.payloads import remember_replaced
from towpath_engine.core.scope import Scope
from towpath_engine.core.settling import NULL, complete_step, fail_step, skip_step
from towpath_engine.core.states import StepStatus, WaitReason
from towpath_engine.core.transitions import StepChange
from towpath_protocol import codec
from towpath_protocol.errors import ProtocolError
from towpath_protocol.times import format_instant, parse_instant

_NO_INSTANT: Final = "the value is no RFC 3339 instant with a zone, as 2030-01-31T12:00:00Z"


def enter(changes: Changes, path: str) -> None:
    """A visit of the step begins, unless what it belongs to is over."""
    if changes.is_owner_open(upper_of(path)):
        enter_step(changes, path)


def enter_step(changes: Changes, path: str, *, given: bytes | None = None) -> None:
    """A visit of the step begins, with the input that an operator has `given` it, if any."""
    step_def = changes.definition_of(path)
    step = _visited(changes, path, step_def)
    if given is not None:
        step = replace(step, input=given)
    before = changes.run.visit_base if upper_of(path) == ROOT else 0
    if step_def.limit is not None and step.visit - before > step_def.limit:
        failure = Failure(
            type=failures.VISIT_LIMIT,
            message=f"the run came here more than {step_def.limit} times",
            retryable=False,
        )
        fail_step(changes, step, failure)
        return
    _pass_conditions(changes, step)


def resume_step(changes: Changes, step: Step) -> None:
    """Go on with a visit that an operator revived: with its work, if the run had come as far, else
    with its conditions. A `limit` was asked when the visit began."""
    if step.ready_at is None:
        _pass_conditions(changes, step)
    else:
        _begin(changes, step)


def _pass_conditions(changes: Changes, step: Step) -> None:
    """`when`, then `delay`, then the step begins."""
    step_def = changes.definition_of(step.path)
    if step_def.when is not None:
        try:
            wanted = step_def.when.evaluate(Scope(changes, step))
        except ExpressionFailed as failed:
            fail_step(changes, step, failures.from_expression(failed))
            return
        if not wanted:
            skip_step(changes, step)
            return
    if step_def.delay_ms is not None:
        _wait(changes, step, WaitReason.DELAY, plus_ms(changes.now, step_def.delay_ms))
        return
    _begin(changes, step)


def _visited(changes: Changes, path: str, step_def: StepDef) -> Step:
    """The step as it is when a visit begins: everything of the visit before is gone, except its
    output, which expressions still see."""
    owner = upper_of(path)
    spec = step_def.spec
    queue, task = (spec.queue, spec.task) if isinstance(spec, TaskSpec) else (None, None)
    came_from = changes.owner_came_from(owner)
    if not changes.reached(owner, step_def.index):
        changes.reach(owner, step_def.index)
        first = changes.unreached(step_def, owner)
        return replace(first, queue=queue, task=task, came_from=came_from)
    earlier = changes.need(path)
    undo_stack.archive(changes, earlier)
    again = Step(
        path=path,
        kind=step_def.kind,
        status=earlier.status,
        visit=earlier.visit + 1,
        revival_count=earlier.revival_count,
        came_from=came_from,
        queue=queue,
        task=task,
        last_output=last_output_of(earlier),
    )
    revisited = changes.move(again, StepChange.REVISITED)
    remember_replaced(changes, earlier)
    return revisited


def last_output_of(step: Step) -> bytes | None:
    """What expressions see of the step once it is visited again."""
    return step.output if step.status is StepStatus.COMPLETED else step.last_output


def _begin(changes: Changes, step: Step) -> None:
    """What the kind does, once `when` and `delay` are behind."""
    begun = replace(step, ready_at=changes.now, waiting_for=None, wake_at=None)
    try:
        _begin_kind(changes, begun)
    except ExpressionFailed as failed:
        fail_step(changes, begun, failures.from_expression(failed))


def _begin_kind(changes: Changes, step: Step) -> None:
    """Raises ExpressionFailed when the step can't begin, before anything has changed."""
    spec = changes.definition_of(step.path).spec
    match spec:
        case TaskSpec():
            step_ms = spec.timeouts.step_ms
            deadline = None if step_ms is None else plus_ms(changes.now, step_ms)
            begin_iteration(changes, replace(step, step_deadline_at=deadline))
        case PassSpec():
            _pass(changes, step, spec)
        case ChoiceSpec():
            _choose(changes, step, spec)
        case WaitSpec():
            waits.begin(changes, step, spec)
        case SleepSpec():
            _sleep(changes, step, spec)
        case ParallelSpec():
            wholes.begin_parallel(changes, step, spec)
        case MapSpec():
            wholes.begin_map(changes, step, spec)
        case RunSpec():
            children.begin(changes, step, spec)
        case _:
            assert_never(spec)


def _pass(changes: Changes, step: Step, spec: PassSpec) -> None:
    value = spec.value.render(Scope(changes, step))
    size_max = changes.run.limits.payload_bytes_max
    if len(value) > size_max:
        too_large = failures.too_large("the output", len(value), size_max)
        fail_step(changes, step, too_large)
        return
    complete_step(changes, step, value)


def _choose(changes: Changes, step: Step, spec: ChoiceSpec) -> None:
    scope = Scope(changes, step)
    taken = (branch.next for branch in spec.branches if branch.when.evaluate(scope))
    chosen = next(taken, spec.default)
    if chosen is None:
        failure = Failure(
            type=failures.NO_CHOICE,
            message="no condition holds and there is no default",
            retryable=False,
        )
        fail_step(changes, step, failure)
        return
    output = codec.dumps({"chosen": chosen})
    complete_step(changes, step, output, {"chosen": chosen}, chosen=chosen)


def _sleep(changes: Changes, step: Step, spec: SleepSpec) -> None:
    if spec.until is not None:
        field = f"steps.{place_of(step.path)}.until"
        until = min(LATEST, _instant(spec.until.render(Scope(changes, step)), field))
    else:
        until = plus_ms(changes.now, spec.duration_ms or 0)
    if until <= changes.now:
        complete_step(changes, step, NULL)
        return
    _wait(changes, step, WaitReason.SLEEP, until)


def _instant(text: bytes, field: str) -> datetime:
    """The instant that a rendered `until` names. Raises ExpressionFailed for anything else."""
    value: object = codec.loads(text)
    if not isinstance(value, str):
        raise unusable(text, field, _NO_INSTANT)
    try:
        return parse_instant(value, field)
    except ProtocolError as error:
        raise unusable(text, field, _NO_INSTANT) from error


def _wait(changes: Changes, step: Step, reason: WaitReason, until: datetime) -> None:
    facts = {"for": reason.value, "until": format_instant(until)}
    changes.move(replace(step, waiting_for=reason, wake_at=until), StepChange.WAITING, facts)


def wake(changes: Changes, step: Step) -> None:
    """The step's `wake_at` has come."""
    match step.waiting_for:
        case WaitReason.DELAY:
            _begin(changes, step)
        case WaitReason.SLEEP:
            complete_step(changes, step, NULL)
        case WaitReason.SIGNAL:
            waits.time_out(changes, step)
        case WaitReason.BACKOFF | WaitReason.REPEAT | WaitReason.RELEASED:
            wake_attempt(changes, step)
        case WaitReason.CHILD | None:
            raise AssertionError(f"step {step.path} has an instant but waits for none")
        case _:
            assert_never(step.waiting_for)
