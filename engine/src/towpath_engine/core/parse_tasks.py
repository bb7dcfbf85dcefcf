"""Reading tasks: that of a task step, and that which undoes a step."""

from typing import Final

from msgspec.structs import replace

from towpath_engine.core.definition import Repeat, StepSpec, TaskSpec, Timeouts
from towpath_engine.core.expressions.interface import Condition
from towpath_engine.core.expressions_of import AGAIN, ITERATION, UNDO
from towpath_engine.core.faults import FaultCode
from towpath_engine.core.fields import Fields
from towpath_engine.core.parse_context import StepContext
from towpath_engine.core.parse_retry import read_retry
from towpath_protocol.ids import check_queue, check_task

TASK_FIELDS: Final = frozenset({"task", "queue", "input", "retry", "timeouts"})
_REPEAT: Final = frozenset({"delay", "limit", "while"})
_TIMEOUTS: Final = frozenset({"attempt", "dispatch", "step", "heartbeat"})


def read_task(fields: Fields, context: StepContext) -> TaskSpec | None:
    """The task of a task step; None when its name is faulty."""
    spec = _task(fields, context, names=ITERATION)
    repeat = _repeat(fields, context)
    return None if spec is None else replace(spec, repeat=repeat)


def read_compensation(
    parent: Fields, context: StepContext, *, spec: StepSpec | None, when: Condition | None
) -> TaskSpec | None:
    """The task that undoes the step; by default it goes to the queue of the step's own task."""
    fields = parent.object("compensate", TASK_FIELDS)
    if fields is None:
        return None
    fields.require("task")
    if when is not None and when.source.strip() == "false":
        message = "a step that is always skipped has nothing to undo"
        parent.fault("compensate", message, FaultCode.CONFLICT)
    queue = spec.queue if isinstance(spec, TaskSpec) else TaskSpec(task="").queue
    # The deadline of the run is no limit to undoing: that comes after it.
    context = replace(context, run_timeout_ms=None)
    return _task(fields, context, names=UNDO, prefix="compensate.", queue=queue)


def _task(
    fields: Fields,
    context: StepContext,
    *,
    names: frozenset[str],
    prefix: str = "",
    queue: str = TaskSpec(task="").queue,
) -> TaskSpec | None:
    task = fields.name("task", check_task)
    named = fields.name("queue", check_queue)
    template = context.template(fields, "input", f"{prefix}input", names)
    retry = read_retry(
        fields,
        context.expressions,
        base=context.retry,
        visible=context.visible,
        field=context.field(f"{prefix}retry.when"),
    )
    timeouts = _timeouts(fields, context.run_timeout_ms)
    if task is None:
        return None
    return TaskSpec(
        task=task,
        queue=queue if named is None else named,
        input=template,
        retry=retry,
        timeouts=timeouts,
    )


def _timeouts(parent: Fields, run_ms: int | None) -> Timeouts:
    fields = parent.object("timeouts", _TIMEOUTS)
    if fields is None:
        return Timeouts()
    given = {name: fields.duration(name) for name in sorted(_TIMEOUTS)}
    inner = (("heartbeat", "attempt"), ("attempt", "step"), ("dispatch", "step"))
    for shorter, longer in inner:
        short_ms, long_ms = given[shorter], given[longer]
        if short_ms is not None and long_ms is not None and short_ms > long_ms:
            message = f"is longer than the {longer} timeout, so it could never pass"
            fields.fault(shorter, message, FaultCode.CONFLICT)
    for name, length_ms in given.items():
        if length_ms is not None and run_ms is not None and length_ms > run_ms:
            message = "is longer than the timeout of the run, so it could never pass"
            fields.fault(name, message, FaultCode.CONFLICT)
    attempt_ms = given["attempt"]
    timeouts = Timeouts(
        dispatch_ms=given["dispatch"],
        step_ms=given["step"],
        heartbeat_ms=given["heartbeat"],
    )
    return timeouts if attempt_ms is None else replace(timeouts, attempt_ms=attempt_ms)


def _repeat(parent: Fields, context: StepContext) -> Repeat | None:
    fields = parent.object("repeat", _REPEAT)
    if fields is None:
        return None
    rule = Repeat()
    delay_ms, limit = fields.duration("delay"), fields.count("limit")
    return Repeat(
        delay_ms=rule.delay_ms if delay_ms is None else delay_ms,
        limit=rule.limit if limit is None else limit,
        again_while=context.condition(fields, "while", "repeat.while", AGAIN),
    )
