"""Reading what a step has of its own kind, but for tasks and the lists inside of a step."""

from typing import Final

from towpath_engine.core.definition import (
    ChoiceBranch,
    ChoiceSpec,
    MapSpec,
    ParallelSpec,
    PassSpec,
    RunSpec,
    SleepSpec,
    StepSpec,
    WaitMode,
    WaitSpec,
)
from towpath_engine.core.expressions.compiler import RESERVED_WORDS
from towpath_engine.core.expressions.functions import TYPE_VALUES
from towpath_engine.core.expressions.variables import VARIABLES
from towpath_engine.core.faults import FaultCode
from towpath_engine.core.fields import Fields, is_list, is_object, kind_of, open_object
from towpath_engine.core.parse_context import StepContext, read_schema
from towpath_engine.core.parse_tasks import read_task
from towpath_engine.core.states import StepKind
from towpath_protocol.ids import check_signal, check_step, check_workflow

_WAIT: Final = frozenset({"signal", "any", "all", "count", "schema", "timeout", "on_timeout"})
_AWAITED: Final = ("signal", "any", "all")
SIGNALS_MAX: Final = 10_000
"""A run keeps no more signals than that, so a wait for more of them would never end."""
_RUN: Final = frozenset({"workflow", "version", "input", "key", "detached"})
_MAP: Final = frozenset({"items", "as", "max_concurrency", "tolerate", "steps"})
_PARALLEL: Final = frozenset({"on_error", "branches"})


def read_spec(kind: StepKind, fields: Fields, context: StepContext) -> StepSpec | None:  # noqa: PLR0911 - one for each kind
    """The spec of a step of this kind; None when it has faults. Inner lists are read apart."""
    match kind:
        case StepKind.TASK:
            return read_task(fields, context)
        case StepKind.PASS:
            value = context.template(fields, "pass", "pass")
            return None if value is None else PassSpec(value=value)
        case StepKind.CHOICE:
            return _choice(fields, context)
        case StepKind.WAIT:
            return _wait(fields)
        case StepKind.SLEEP:
            return _sleep(fields, context)
        case StepKind.PARALLEL:
            return _parallel(fields)
        case StepKind.MAP:
            return _map(fields, context)
        case StepKind.RUN:
            return _run(fields, context)
        case StepKind.BRANCH | StepKind.ITEM:
            raise AssertionError(f"{kind} is no kind of a definition")


def _choice(fields: Fields, context: StepContext) -> ChoiceSpec | None:
    rows = fields.values["choice"]
    default = fields.text("default")
    if not is_list(rows) or not rows:
        message = "must be a list of at least one {when, next}"
        fields.fault("choice", message, FaultCode.WRONG_TYPE)
        return None
    branches = [_choice_row(fields, row, index, context) for index, row in enumerate(rows)]
    read = tuple(branch for branch in branches if branch is not None)
    if len(read) < len(branches):
        return None
    return ChoiceSpec(branches=read, default=default)


def _choice_row(
    parent: Fields, row: object, index: int, context: StepContext
) -> ChoiceBranch | None:
    place = f"choice[{index}]"
    known = frozenset({"when", "next"})
    fields = open_object(row, parent.place(place), parent.faults, known=known)
    if fields is None:
        return None
    fields.require("when")
    fields.require("next")
    when = context.condition(fields, "when", f"{place}.when")
    target = fields.text("next")
    return None if when is None or target is None else ChoiceBranch(when=when, next=target)


def _wait(parent: Fields) -> WaitSpec | None:
    fields = parent.object("wait", _WAIT)
    if fields is None:
        return None
    named = [name for name in _AWAITED if fields.has(name)]
    if not named:
        message = "is missing: a wait has one of `signal`, `any`, `all`"
        fields.fault("signal", message, FaultCode.MISSING)
    elif len(named) > 1:
        message = f"a wait has only one of {', '.join(named)}"
        fields.fault(named[1], message, FaultCode.CONFLICT)
    count = _count_of_signals(fields)
    schema = read_schema(fields, "schema")
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
    signal = fields.name("signal", check_signal)
    names = fields.names("any", check_signal) or fields.names("all", check_signal)
    signals = (signal,) if signal is not None else names
    if signals is None:
        return None
    mode = WaitMode.ANY if count is None else WaitMode.COUNT
    return WaitSpec(
        signals=signals,
        mode=WaitMode.ALL if fields.has("all") else mode,
        count=count or 1,
        schema=schema,
        timeout_ms=timeout_ms,
        on_timeout_next=target,
    )


def _count_of_signals(fields: Fields) -> int | None:
    count = fields.count("count")
    if count is not None and count > SIGNALS_MAX:
        message = f"a run keeps {SIGNALS_MAX} signals, so {count} would never be there"
        fields.fault("count", message, FaultCode.BAD_VALUE)
    if fields.has("count") and fields.has("all"):
        message = "`all` takes one signal of each name, so there is nothing to count"
        fields.fault("count", message, FaultCode.CONFLICT)
    return count


def _sleep(fields: Fields, context: StepContext) -> SleepSpec | None:
    """`sleep: 24h`, `until: …`, or `sleep: {until: …}`."""
    if is_object(fields.values.get("sleep")):
        inner = fields.object("sleep", frozenset({"until"}))
        if inner is None:
            return None
        inner.require("until")
        return _until(inner, context)
    if fields.has("until"):
        return _until(fields, context)
    duration_ms = fields.duration("sleep")
    return None if duration_ms is None else SleepSpec(duration_ms=duration_ms)


def _until(fields: Fields, context: StepContext) -> SleepSpec | None:
    until = context.template(fields, "until", "until")
    return None if until is None else SleepSpec(until=until)


def _run(parent: Fields, context: StepContext) -> RunSpec | None:
    fields = parent.object("run", _RUN)
    if fields is None:
        return None
    fields.require("workflow")
    workflow = fields.name("workflow", check_workflow)
    version = fields.count("version")
    template = context.template(fields, "input", "run.input")
    # A key is a text; whether what an expression gives is one, only the run can tell.
    key = None if fields.text("key") is None else context.template(fields, "key", "run.key")
    detached = fields.flag("detached")
    if workflow is None:
        return None
    return RunSpec(workflow=workflow, version=version, input=template, key=key, detached=detached)


def _parallel(parent: Fields) -> ParallelSpec | None:
    fields = parent.object("parallel", _PARALLEL)
    if fields is None:
        return None
    fields.require("branches")
    on_error = fields.word("on_error", ("fail_fast", "wait_all"))
    if not fields.has("branches"):
        return None
    branches = fields.values["branches"]
    if not is_object(branches):
        message = f"must be an object of lists of steps, not {kind_of(branches)}"
        fields.fault("branches", message, FaultCode.WRONG_TYPE)
        return None
    if not branches:
        fields.fault("branches", "must have at least one branch", FaultCode.MISSING)
    for name in branches:
        # The same rule as for steps, for they stand in paths together.
        holder = Fields({name: name}, fields.place("branches"), fields.faults)
        if not name:
            holder.fault("", "a branch needs a name", FaultCode.BAD_NAME)
        else:
            holder.name(name, check_step)
    # In the order of the stored text, whose keys are sorted: it must not depend on who parsed it.
    return ParallelSpec(branches=tuple(sorted(branches)), wait_all=on_error == "wait_all")


def _map(parent: Fields, context: StepContext) -> MapSpec | None:
    fields = parent.object("map", _MAP)
    if fields is None:
        return None
    for name in ("items", "steps"):
        fields.require(name)
    items = None
    if _may_give_a_list(fields):
        items = context.template(fields, "items", "map.items")
    as_name = _item_name(fields, context)
    concurrency = fields.count("max_concurrency")
    count, percent = _tolerated(fields)
    if items is None:
        return None
    rule = MapSpec(items=items)
    return MapSpec(
        items=items,
        as_name=as_name or rule.as_name,
        max_concurrency=rule.max_concurrency if concurrency is None else concurrency,
        tolerate_count=count or 0,
        tolerate_percent=percent,
    )


def _may_give_a_list(fields: Fields) -> bool:
    value = fields.values.get("items")
    if is_list(value) or (isinstance(value, str) and "${" in value):
        return True
    if fields.has("items"):
        message = "must be a list, or an expression that gives one: '${ input.lines }'"
        fields.fault("items", message, FaultCode.WRONG_TYPE)
    return False


def _item_name(fields: Fields, context: StepContext) -> str | None:
    name = fields.name("as", check_step)
    if name is not None and (name in RESERVED_WORDS or name in VARIABLES or name in TYPE_VALUES):
        message = f"{name!r} already means something in expressions"
        fields.fault("as", message, FaultCode.BAD_NAME)
    seen = name or "item"
    if seen in context.visible.names:
        message = f"a map around this one calls its item {seen!r} too: give this one another name"
        fields.fault("as", message, FaultCode.DUPLICATE)
    return name


def _tolerated(parent: Fields) -> tuple[int | None, float | None]:
    fields = parent.object("tolerate", frozenset({"count", "percent"}))
    if fields is None:
        return None, None
    count, percent = fields.count("count"), fields.number("percent", 0, 100)
    if percent == 0:
        fields.fault("percent", "must be more than 0", FaultCode.BAD_VALUE)
    if fields.has("count") and fields.has("percent"):
        message = "failures are tolerated by number or by share, not both"
        fields.fault("percent", message, FaultCode.CONFLICT)
    elif not fields.values:
        fields.fault("count", "is missing: give `count` or `percent`", FaultCode.MISSING)
    return count, percent
