"""Reading the steps of a definition: what every kind has, and which kind a step is of."""

from typing import Final

from towpath_engine.core.definition import CatchRow, SleepSpec, StepDef
from towpath_engine.core.expressions.compiler import RESERVED_WORDS
from towpath_engine.core.expressions_of import ERROR
from towpath_engine.core.faults import FaultCode
from towpath_engine.core.fields import Fields, is_list, is_object, open_object
from towpath_engine.core.parse_context import StepContext
from towpath_engine.core.parse_kinds import read_spec
from towpath_engine.core.parse_tasks import TASK_FIELDS, read_compensation
from towpath_engine.core.states import StepKind
from towpath_protocol.ids import check_step

_COMMON: Final = frozenset({
    "name", "when", "delay", "next", "end", "limit", "after", "catch", "compensate",
})  # fmt: skip
_OWN: Final[dict[StepKind, frozenset[str]]] = {
    StepKind.TASK: TASK_FIELDS | {"repeat"},
    StepKind.WAIT: frozenset({"wait"}),
    StepKind.SLEEP: frozenset({"sleep", "until"}),
    StepKind.CHOICE: frozenset({"choice", "default"}),
    StepKind.PASS: frozenset({"pass"}),
    StepKind.PARALLEL: frozenset({"parallel"}),
    StepKind.MAP: frozenset({"map"}),
    StepKind.RUN: frozenset({"run"}),
}
_KIND_FIELDS: Final = {
    "task": StepKind.TASK,
    "wait": StepKind.WAIT,
    "sleep": StepKind.SLEEP,
    "until": StepKind.SLEEP,
    "choice": StepKind.CHOICE,
    "pass": StepKind.PASS,
    "parallel": StepKind.PARALLEL,
    "map": StepKind.MAP,
    "run": StepKind.RUN,
}
_NOT_IN_A_DAG: Final = ("next", "end", "choice", "catch")
_NEVER_CAUGHT: Final = "RunTooBig"


def read_step(
    fields: Fields, context: StepContext, *, index: int, following: str | None
) -> StepDef | None:
    """One step of a list; None when it has faults that leave nothing to build on.

    Whom it comes after, and who after it, the list knows: `after` is not looked at.
    """
    kind = _kind(fields)
    own = _OWN.values() if kind is None else (_OWN[kind],)
    fields.check_names(_COMMON.union(*own))
    fields.require("name")
    name = fields.name("name", check_step)
    if name in RESERVED_WORDS:
        fields.fault("name", f"{name!r} is a word of the expression language", FaultCode.BAD_NAME)
    when = context.condition(fields, "when", "when")
    spec = None if kind is None else read_spec(kind, fields, context)
    step = StepDef(
        path=context.place,
        kind=kind or StepKind.PASS,
        spec=spec or SleepSpec(),
        when=when,
        delay_ms=fields.duration("delay"),
        next=fields.text("next"),
        end=fields.flag("end"),
        limit=fields.count("limit"),
        following=None if context.is_dag else following,
        index=index,
        catch=_catch(fields, context),
        compensate=read_compensation(fields, context, spec=spec, when=when),
    )
    _check_way(fields, step, kind)
    if context.is_dag:
        _check_dag(fields)
    return None if spec is None or name is None else step


def _kind(fields: Fields) -> StepKind | None:
    named = [name for name in _KIND_FIELDS if name in fields.values]
    if len(named) == 1:
        return _KIND_FIELDS[named[0]]
    if not named:
        kinds = ", ".join(_KIND_FIELDS)
        message = f"a step needs exactly one kind: one of {kinds}"
        fields.faults.add(fields.path, message, FaultCode.MISSING)
    else:
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


def _check_dag(fields: Fields) -> None:
    message = "in a list with `after`, steps start by what they come after and go nowhere else"
    for name in _NOT_IN_A_DAG:
        if fields.has(name):
            fields.fault(name, message, FaultCode.CONFLICT)
    wait = fields.values.get("wait")
    if is_object(wait) and "on_timeout" in wait:
        fields.fault("wait.on_timeout", message, FaultCode.CONFLICT)


def _catch(fields: Fields, context: StepContext) -> tuple[CatchRow, ...]:
    if not fields.has("catch"):
        return ()
    rows = fields.values["catch"]
    if not is_list(rows) or not rows:
        message = "must be a list of at least one {errors, when, next}"
        fields.fault("catch", message, FaultCode.WRONG_TYPE)
        return ()
    read = [_catch_row(fields, row, index, context) for index, row in enumerate(rows)]
    return tuple(row for row in read if row is not None)


def _catch_row(parent: Fields, row: object, index: int, context: StepContext) -> CatchRow | None:
    place = f"catch[{index}]"
    known = frozenset({"errors", "when", "next"})
    fields = open_object(row, parent.place(place), parent.faults, known=known)
    if fields is None:
        return None
    fields.require("next")
    errors, target = fields.texts("errors"), fields.text("next")
    if fields.has("errors") and fields.values["errors"] == []:
        fields.fault("errors", "is empty: no error would be caught", FaultCode.BAD_VALUE)
    if errors is not None and _NEVER_CAUGHT in errors:
        message = f"{_NEVER_CAUGHT} fails the run at once: nothing catches it"
        fields.fault("errors", message, FaultCode.BAD_VALUE)
    when = context.condition(fields, "when", f"{place}.when", ERROR)
    if target is None:
        return None
    caught = None if errors is None else frozenset(errors)
    return CatchRow(next=target, errors=caught, when=when)
