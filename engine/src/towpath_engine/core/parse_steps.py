"""Reading the steps of a definition: the fields of every kind."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core.definition import (
    ChoiceBranch,
    ChoiceSpec,
    PassSpec,
    Repeat,
    RetryPolicy,
    SleepSpec,
    StepDef,
    StepSpec,
    TaskSpec,
    Timeouts,
    WaitSpec,
)
from towpath_engine.core.expressions.compiler import RESERVED_WORDS
from towpath_engine.core.expressions.interface import Visible
from towpath_engine.core.expressions_of import ITERATION, Expressions
from towpath_engine.core.faults import FaultCode, Faults
from towpath_engine.core.fields import Fields, is_list, is_object, kind_of, open_object
from towpath_engine.core.parse_retry import read_retry
from towpath_engine.core.states import StepKind
from towpath_protocol.ids import check_queue, check_signal, check_step, check_task

_KINDS_NOT_YET: Final = {
    "parallel": "a `parallel` step",
    "map": "a `map` step",
    "run": "a child run",
}
_COMMON_NOT_YET: Final = {
    **_KINDS_NOT_YET,
    "after": "`after` (a list whose steps start by their dependencies)",
    "catch": "`catch`",
    "compensate": "`compensate`",
}
_COMMON: Final = frozenset({"name", "when", "delay", "next", "end", "limit"})
_OWN: Final[dict[StepKind, frozenset[str]]] = {
    StepKind.TASK: frozenset({"task", "queue", "input", "retry", "timeouts", "repeat"}),
    StepKind.WAIT: frozenset({"wait"}),
    StepKind.SLEEP: frozenset({"sleep", "until"}),
    StepKind.CHOICE: frozenset({"choice", "default"}),
    StepKind.PASS: frozenset({"pass"}),
}
_KIND_FIELDS: Final = {
    "task": StepKind.TASK,
    "wait": StepKind.WAIT,
    "sleep": StepKind.SLEEP,
    "until": StepKind.SLEEP,
    "choice": StepKind.CHOICE,
    "pass": StepKind.PASS,
}
_WAIT_NOT_YET: Final = {
    "any": "a wait for any of several signals",
    "all": "a wait for several signals",
    "count": "a wait for several signals",
    "schema": "a schema of a signal's payload",
}
_REPEAT_NOT_YET: Final = {"while": "`while` of a repeat"}
_TIMEOUTS: Final = frozenset({"attempt", "dispatch", "step", "heartbeat"})


class StepContext(Struct, frozen=True, kw_only=True):
    """What reading a step needs of the definition around it."""

    expressions: Expressions
    faults: Faults
    retry: RetryPolicy
    """The workflow's default for task steps."""
    run_timeout_ms: int | None


def read_step(
    value: object, index: int, context: StepContext, *, visible: Visible, following: str | None
) -> StepDef | None:
    """One step of the list; None when it has faults that leave nothing to build on."""
    path = f"steps[{index}]"
    if not is_object(value):
        message = f"must be an object, not {kind_of(value)}"
        context.faults.add(path, message, FaultCode.WRONG_TYPE)
        return None
    fields = Fields(value, path, context.faults)
    kind = _kind(fields)
    own = _OWN.values() if kind is None else (_OWN[kind],)
    fields.check_names(_COMMON.union(*own), _COMMON_NOT_YET)
    fields.require("name")
    name = fields.name("name", check_step)
    if name in RESERVED_WORDS:
        fields.fault("name", f"{name!r} is a word of the expression language", FaultCode.BAD_NAME)
    reader = _StepReader(fields, name or f"#{index}", context, visible)
    when = context.expressions.condition(
        fields, "when", visible=visible, field=f"steps.{reader.name}.when"
    )
    spec = None if kind is None else reader.spec(kind)
    step = StepDef(
        path=reader.name,
        kind=kind or StepKind.PASS,
        spec=spec or SleepSpec(),
        when=when,
        delay_ms=fields.duration("delay"),
        next=fields.text("next"),
        end=fields.flag("end"),
        limit=fields.count("limit"),
        following=following,
        index=index,
    )
    _check_way(fields, step, kind)
    return None if spec is None or name is None else step


def _kind(fields: Fields) -> StepKind | None:
    named = [name for name in (*_KIND_FIELDS, *_KINDS_NOT_YET) if name in fields.values]
    if len(named) == 1 and named[0] in _KIND_FIELDS:
        return _KIND_FIELDS[named[0]]
    if not named:
        kinds = ", ".join((*_KIND_FIELDS, *_KINDS_NOT_YET))
        message = f"a step needs exactly one kind: one of {kinds}"
        fields.faults.add(fields.path, message, FaultCode.MISSING)
    elif len(named) > 1:
        message = f"a step has exactly one kind, this one has {', '.join(named)}"
        fields.faults.add(fields.path, message, FaultCode.CONFLICT)
    return None


def _check_way(fields: Fields, step: StepDef, kind: StepKind | None) -> None:
    if step.end and step.next is not None:
        fields.fault("next", "a step that ends the list goes nowhere", FaultCode.CONFLICT)
    if kind is StepKind.CHOICE:
        for name in ("next", "end"):
            if fields.has(name):
                message = "a choice goes where its rows say; when skipped, to the following step"
                fields.fault(name, message, FaultCode.CONFLICT)


class _StepReader:
    """Reads what a step has of its own kind."""

    def __init__(self, fields: Fields, name: str, context: StepContext, visible: Visible) -> None:
        self.name = name
        self._fields = fields
        self._context = context
        self._visible = visible

    def spec(self, kind: StepKind) -> StepSpec | None:
        """The spec of the step's kind; None when it has faults."""
        match kind:
            case StepKind.TASK:
                return self._task()
            case StepKind.PASS:
                return self._pass()
            case StepKind.CHOICE:
                return self._choice()
            case StepKind.WAIT:
                return self._wait()
            case StepKind.SLEEP:
                return self._sleep()

    def _field(self, name: str) -> str:
        return f"steps.{self.name}.{name}"

    def _task(self) -> TaskSpec | None:
        fields, context = self._fields, self._context
        task = fields.name("task", check_task)
        queue = fields.name("queue", check_queue)
        seen = Visible(steps=self._visible.steps, names=ITERATION)
        template = context.expressions.template(
            fields, "input", visible=seen, field=self._field("input")
        )
        retry = read_retry(
            fields,
            context.expressions,
            base=context.retry,
            steps=self._visible.steps,
            field=self._field("retry.when"),
        )
        timeouts = self._timeouts()
        repeat = self._repeat()
        if task is None:
            return None
        spec = TaskSpec(task=task, input=template, retry=retry, timeouts=timeouts, repeat=repeat)
        return spec if queue is None else replace(spec, queue=queue)

    def _timeouts(self) -> Timeouts:
        fields = self._fields.object("timeouts", _TIMEOUTS)
        if fields is None:
            return Timeouts()
        given = {name: fields.duration(name) for name in sorted(_TIMEOUTS)}
        run_ms = self._context.run_timeout_ms
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

    def _repeat(self) -> Repeat | None:
        if not self._fields.has("repeat"):
            return None
        fields = open_object(
            self._fields.values["repeat"],
            self._fields.place("repeat"),
            self._context.faults,
            known=frozenset({"delay", "limit"}),
            not_yet=_REPEAT_NOT_YET,
        )
        if fields is None:
            return None
        rule = Repeat()
        delay_ms, limit = fields.duration("delay"), fields.count("limit")
        return Repeat(
            delay_ms=rule.delay_ms if delay_ms is None else delay_ms,
            limit=rule.limit if limit is None else limit,
        )

    def _pass(self) -> PassSpec | None:
        template = self._context.expressions.template(
            self._fields, "pass", visible=self._visible, field=self._field("pass")
        )
        return None if template is None else PassSpec(value=template)

    def _choice(self) -> ChoiceSpec | None:
        fields = self._fields
        rows = fields.values["choice"]
        default = fields.text("default")
        if not is_list(rows) or not rows:
            message = "must be a list of at least one {when, next}"
            fields.fault("choice", message, FaultCode.WRONG_TYPE)
            return None
        branches = [self._branch(row, index) for index, row in enumerate(rows)]
        read = tuple(branch for branch in branches if branch is not None)
        if len(read) < len(branches):
            return None
        return ChoiceSpec(branches=read, default=default)

    def _branch(self, row: object, index: int) -> ChoiceBranch | None:
        fields = open_object(
            row,
            self._fields.place(f"choice[{index}]"),
            self._context.faults,
            known=frozenset({"when", "next"}),
        )
        if fields is None:
            return None
        fields.require("when")
        fields.require("next")
        when = self._context.expressions.condition(
            fields, "when", visible=self._visible, field=self._field(f"choice[{index}].when")
        )
        target = fields.text("next")
        return None if when is None or target is None else ChoiceBranch(when=when, next=target)

    def _wait(self) -> WaitSpec | None:
        fields = open_object(
            self._fields.values["wait"],
            self._fields.place("wait"),
            self._context.faults,
            known=frozenset({"signal", "timeout", "on_timeout"}),
            not_yet=_WAIT_NOT_YET,
        )
        if fields is None:
            return None
        if not any(name in fields.values for name in _WAIT_NOT_YET):
            fields.require("signal")
        signal = fields.name("signal", check_signal)
        timeout_ms = fields.duration("timeout")
        target = None
        if fields.has("on_timeout"):
            inner = fields.object("on_timeout", frozenset({"next"}))
            if inner is not None:
                inner.require("next")
                target = inner.text("next")
            if not fields.has("timeout"):
                message = "a wait without a timeout never times out"
                fields.fault("on_timeout", message, FaultCode.CONFLICT)
        if signal is None:
            return None
        return WaitSpec(signals=(signal,), timeout_ms=timeout_ms, on_timeout_next=target)

    def _sleep(self) -> SleepSpec | None:
        """`sleep: 24h`, `until: …`, or `sleep: {until: …}`."""
        fields = self._fields
        value = fields.values.get("sleep")
        if is_object(value):
            inner = open_object(
                value, fields.place("sleep"), fields.faults, known=frozenset({"until"})
            )
            if inner is None:
                return None
            inner.require("until")
            return self._until(inner)
        if fields.has("until"):
            return self._until(fields)
        duration_ms = fields.duration("sleep")
        return None if duration_ms is None else SleepSpec(duration_ms=duration_ms)

    def _until(self, fields: Fields) -> SleepSpec | None:
        until = self._context.expressions.template(
            fields, "until", visible=self._visible, field=self._field("until")
        )
        return None if until is None else SleepSpec(until=until)
