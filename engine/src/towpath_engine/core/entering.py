"""Coming to a step: visit limit, `when`, `delay`, then what its kind does.

Steps that need no worker are decided on the spot, one after another in a loop, so that hundreds
of them cost one decision. A decision that has reached its limit of transitions leaves `cursor` on
the run and goes on in the next one.
"""

from datetime import datetime
from enum import Enum, auto
from typing import assert_never

import msgspec
from msgspec.structs import replace

from towpath_engine.core import failures
from towpath_engine.core.attempts import begin_iteration, wake_attempt
from towpath_engine.core.changes import Changes, StepNotLoaded
from towpath_engine.core.definition import (
    ChoiceSpec,
    PassSpec,
    SleepSpec,
    StepDef,
    TaskSpec,
    WaitSpec,
)
from towpath_engine.core.effects import ConsumeSignal, ContinueLater
from towpath_engine.core.expressions.interface import ExpressionFailed
from towpath_engine.core.instants import LATEST, plus_ms
from towpath_engine.core.model import Failure, KeptSignal, Step
from towpath_engine.core.payloads import remember_replaced
from towpath_engine.core.scope import Scope
from towpath_engine.core.settling import (
    NULL,
    complete_step,
    fail_step,
    fail_step_and_run,
    finish_list,
)
from towpath_engine.core.states import StepStatus, WaitReason
from towpath_engine.core.transitions import StepChange
from towpath_protocol import codec
from towpath_protocol.errors import ProtocolError
from towpath_protocol.times import format_instant, parse_instant


class Stop(Enum):
    """Why there is no step to enter next."""

    HERE = auto()
    """The step stays open, or the run has settled."""


Onward = str | None | Stop
"""The path of the step to enter next; None: the list is at its end."""


def advance(changes: Changes, onward: Onward) -> None:
    """Enter steps until one stays open, the run settles, or the decision is full."""
    while not isinstance(onward, Stop):
        if onward is None:
            finish_list(changes)
            return
        if changes.full:
            changes.run = replace(changes.run, cursor=onward)
            changes.emit(ContinueLater())
            return
        onward = enter_step(changes, onward)


def enter_step(changes: Changes, path: str, *, given: bytes | None = None) -> Onward:
    """A visit of the step begins, with the input that an operator has `given` it, if any."""
    step_def = changes.definition_of(path)
    step = _visited(changes, step_def)
    if given is not None:
        step = replace(step, input=given)
    if step_def.limit is not None and step.visit - changes.run.visit_base > step_def.limit:
        failure = Failure(
            type=failures.VISIT_LIMIT,
            message=f"the run came here more than {step_def.limit} times",
            retryable=False,
        )
        fail_step_and_run(changes, step, failure)
        return Stop.HERE
    return _pass_conditions(changes, step)


def resume_step(changes: Changes, step: Step) -> Onward:
    """Go on with a visit that an operator revived: with its work, if the run had come as far, else
    with its conditions. A `limit` was asked when the visit began."""
    if step.ready_at is None:
        return _pass_conditions(changes, step)
    return _begin(changes, step)


def _pass_conditions(changes: Changes, step: Step) -> Onward:
    """`when`, then `delay`, then the step begins."""
    step_def = changes.definition_of(step.path)
    if step_def.when is not None:
        try:
            wanted = step_def.when.evaluate(Scope(changes, step))
        except ExpressionFailed as failed:
            fail_step_and_run(changes, step, failures.from_expression(failed))
            return Stop.HERE
        if not wanted:
            skipped = replace(step, settled_at=changes.now)
            changes.move(skipped, StepChange.SKIPPED, {"reason": "when"})
            return step_def.successor
    if step_def.delay_ms is not None:
        _wait(changes, step, WaitReason.DELAY, plus_ms(changes.now, step_def.delay_ms))
        return Stop.HERE
    return _begin(changes, step)


def _visited(changes: Changes, step_def: StepDef) -> Step:
    """The step as it is when a visit begins: everything of the visit before is gone, except its
    output, which expressions still see."""
    earlier = changes.step(step_def.path)
    spec = step_def.spec
    queue, task = (spec.queue, spec.task) if isinstance(spec, TaskSpec) else (None, None)
    came_from = changes.run.last_step
    if not changes.reached(step_def.index):
        changes.reach(step_def.index)
        first = changes.unreached(step_def)
        return replace(first, queue=queue, task=task, came_from=came_from)
    if earlier is None:
        raise StepNotLoaded(f"run {changes.run.id} was loaded without step {step_def.path}")
    again = Step(
        path=step_def.path,
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


def _begin(changes: Changes, step: Step) -> Onward:
    """What the kind does, once `when` and `delay` are behind."""
    begun = replace(step, ready_at=changes.now, waiting_for=None, wake_at=None)
    try:
        return _begin_kind(changes, begun)
    except ExpressionFailed as failed:
        fail_step_and_run(changes, begun, failures.from_expression(failed))
        return Stop.HERE


def _begin_kind(changes: Changes, step: Step) -> Onward:
    spec = changes.definition_of(step.path).spec
    match spec:
        case TaskSpec():
            step_ms = spec.timeouts.step_ms
            deadline = None if step_ms is None else plus_ms(changes.now, step_ms)
            begin_iteration(changes, replace(step, step_deadline_at=deadline))
            return Stop.HERE
        case PassSpec():
            return _pass(changes, step, spec)
        case ChoiceSpec():
            return _choose(changes, step, spec)
        case WaitSpec():
            return _await_signal(changes, step, spec)
        case SleepSpec():
            return _sleep(changes, step, spec)
        case _:
            assert_never(spec)


def _pass(changes: Changes, step: Step, spec: PassSpec) -> Onward:
    value = spec.value.render(Scope(changes, step))
    size_max = changes.run.limits.payload_bytes_max
    if len(value) > size_max:
        too_large = failures.too_large("the output", len(value), size_max)
        fail_step_and_run(changes, step, too_large)
        return Stop.HERE
    return complete_step(changes, step, value)


def _choose(changes: Changes, step: Step, spec: ChoiceSpec) -> Onward:
    scope = Scope(changes, step)
    taken = (branch.next for branch in spec.branches if branch.when.evaluate(scope))
    chosen = next(taken, spec.default)
    if chosen is None:
        failure = Failure(
            type=failures.NO_CHOICE,
            message="no condition holds and there is no default",
            retryable=False,
        )
        fail_step_and_run(changes, step, failure)
        return Stop.HERE
    complete_step(changes, step, codec.dumps({"chosen": chosen}), {"chosen": chosen})
    return chosen


def _await_signal(changes: Changes, step: Step, spec: WaitSpec) -> Onward:
    """Take the earliest kept signal of the name, or wait for one."""
    kept = next((signal for signal in changes.run.kept if signal.name == spec.signal), None)
    named = replace(step, signal=spec.signal)
    if kept is None:
        timeout_ms = spec.timeout_ms
        until = None if timeout_ms is None else plus_ms(changes.now, timeout_ms)
        _wait(changes, named, WaitReason.SIGNAL, until)
        return Stop.HERE
    others = tuple(signal for signal in changes.run.kept if signal.number != kept.number)
    changes.run = replace(changes.run, kept=others)
    changes.emit(ConsumeSignal(number=kept.number, consumed_by=step.path))
    return take_signal(changes, named, kept)


def take_signal(changes: Changes, step: Step, signal: KeptSignal) -> str | None:
    """The wait is over: the signal is its output. Returns what follows."""
    output = {
        "name": signal.name,
        "payload": msgspec.Raw(signal.payload),
        "sent_by": signal.sent_by,
        "received_at": format_instant(signal.received_at),
    }
    facts = {"signal": signal.name, "number": signal.number}
    return complete_step(changes, step, msgspec.json.encode(output), facts)


def _sleep(changes: Changes, step: Step, spec: SleepSpec) -> Onward:
    if spec.until is not None:
        field = f"steps.{step.path}.until"
        until = min(LATEST, _instant(spec.until.render(Scope(changes, step)), field))
    else:
        until = plus_ms(changes.now, spec.duration_ms or 0)
    if until <= changes.now:
        return complete_step(changes, step, NULL)
    _wait(changes, step, WaitReason.SLEEP, until)
    return Stop.HERE


def _instant(text: bytes, field: str) -> datetime:
    """The instant that a rendered `until` names. Raises ExpressionFailed for anything else."""
    value: object = codec.loads(text)
    if not isinstance(value, str):
        raise _no_instant(text, field)
    try:
        return parse_instant(value, field)
    except ProtocolError as error:
        raise _no_instant(text, field) from error


def _no_instant(text: bytes, field: str) -> ExpressionFailed:
    shown = text[:80].decode(errors="replace")
    return ExpressionFailed(
        field=field,
        expression=shown,
        position=None,
        reason="the value is no RFC 3339 instant with a zone, as 2030-01-31T12:00:00Z",
    )


def _wait(changes: Changes, step: Step, reason: WaitReason, until: datetime | None) -> None:
    facts: dict[str, object] = {"for": reason.value}
    if until is not None:
        facts["until"] = format_instant(until)
    if step.signal is not None:
        facts["signal"] = step.signal
    changes.move(replace(step, waiting_for=reason, wake_at=until), StepChange.WAITING, facts)


def wake(changes: Changes, step: Step) -> None:
    """The step's `wake_at` has come."""
    match step.waiting_for:
        case WaitReason.DELAY:
            advance(changes, _begin(changes, step))
        case WaitReason.SLEEP:
            advance(changes, complete_step(changes, step, NULL))
        case WaitReason.SIGNAL:
            _time_out_wait(changes, step)
        case WaitReason.BACKOFF | WaitReason.REPEAT | WaitReason.RELEASED:
            wake_attempt(changes, step)
        case None:
            raise AssertionError(f"step {step.path} has an instant but does not wait")
        case _:
            assert_never(step.waiting_for)


def _time_out_wait(changes: Changes, step: Step) -> None:
    """No signal came. The step fails; with `on_timeout` the run goes on from there."""
    spec = changes.definition_of(step.path).spec
    assert isinstance(spec, WaitSpec), "only a wait waits for a signal"
    failure = failures.timed_out("wait", spec.timeout_ms)
    if spec.on_timeout_next is None:
        fail_step_and_run(changes, step, failure)
        return
    fail_step(changes, step, failure)
    advance(changes, spec.on_timeout_next)
