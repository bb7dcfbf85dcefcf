"""From a document to a `Definition`: everything that a deploy refuses is refused here.

All faults of a document are found in one pass, each with its path. What is accepted is enforced:
a field that this version of the engine does not know how to run is refused by name.
"""

from collections.abc import Mapping
from typing import Final

from towpath_engine.core.definition import Definition, ListDef, RetryPolicy, StepDef, TaskSpec
from towpath_engine.core.definition_schema import check_against_schema
from towpath_engine.core.document import fingerprint, normalise, read_document
from towpath_engine.core.expressions.interface import Template, Visible
from towpath_engine.core.expressions.limits import DEFAULT_EXPRESSION_LIMITS, ExpressionLimits
from towpath_engine.core.expressions_of import Expressions
from towpath_engine.core.faults import DefinitionRefused, Fault, FaultCode, Faults
from towpath_engine.core.fields import Fields, is_list, is_object, kind_of
from towpath_engine.core.graph import Graph, check_graph, read_graph
from towpath_engine.core.parse_retry import read_retry
from towpath_engine.core.parse_steps import StepContext, read_step
from towpath_engine.core.schemas import SchemaRefused, compile_schema
from towpath_protocol.codec import JsonValue
from towpath_protocol.ids import check_workflow
from towpath_protocol.priorities import LEVELS, Priority

__all__ = ["DefinitionRefused", "Fault", "FaultCode", "parse_definition"]

STEPS_MAX: Final = 1_000
TAGS_MAX: Final = 32
TAG_LENGTH_MAX: Final = 128
DIALECT: Final = "cel/1"
_FIELDS: Final = frozenset({
    "expressions", "workflow", "input", "output", "timeout", "on_failure", "priority", "tags",
    "retry", "steps",
})  # fmt: skip


def parse_definition(
    document: bytes | Mapping[str, object], limits: ExpressionLimits = DEFAULT_EXPRESSION_LIMITS
) -> Definition:
    """The definition that a document (JSON or YAML text, or a JSON object) describes.

    Raises DefinitionRefused with all the faults of the document.
    """
    whole = read_document(document)
    faults = Faults()
    definition = _Reader(whole, faults, limits).read()
    faults.refuse_if_any()
    if definition is None:
        raise AssertionError("a definition without faults can be built")
    # The published schema is the second look; what only it finds is a fault all the same.
    check_against_schema(whole, faults)
    faults.refuse_if_any()
    return definition


class _Reader:
    """Reads one document."""

    def __init__(
        self, whole: dict[str, JsonValue], faults: Faults, limits: ExpressionLimits
    ) -> None:
        self._fields = Fields(whole, "", faults)
        self._faults = faults
        self._expressions = Expressions(limits)

    def read(self) -> Definition | None:
        """The definition; None, and faults, when it can't be built."""
        fields = self._fields
        fields.check_names(_FIELDS, {})
        for name in ("workflow", "steps"):
            fields.require(name)
        workflow = fields.name("workflow", check_workflow)
        if fields.word("expressions", (DIALECT,)) is None and fields.has("expressions"):
            workflow = None
        on_failure = fields.word("on_failure", ("compensate", "fail"))
        priority = fields.word("priority", tuple(priority.value for priority in LEVELS))
        timeout_ms = fields.duration("timeout")
        schema = self._input_schema()
        tags = self._tags()
        steps = self._list_of_steps()
        graph = read_graph(steps)
        read = self._steps(steps, graph, timeout_ms)
        check_graph(graph, self._faults)
        output = self._output(graph)
        if workflow is None or not read or self._faults.found:
            return None
        document = normalise(fields.values)
        return Definition(
            workflow=workflow,
            document=document,
            fingerprint=fingerprint(document),
            steps=read,
            lists={"": ListDef(place="", steps=tuple(read), first=(next(iter(read)),))},
            undo_on_failure=on_failure != "fail",
            input_schema=schema,
            output=output,
            timeout_ms=timeout_ms,
            priority=LEVELS[Priority(priority or Priority.NORMAL)],
            tags=tags,
            queues=frozenset(
                step.spec.queue for step in read.values() if isinstance(step.spec, TaskSpec)
            ),
            referenced=frozenset(self._expressions.referenced) | graph.revisited,
        )

    def _input_schema(self) -> dict[str, JsonValue] | bool | None:
        fields = self._fields
        if not fields.has("input"):
            return None
        schema = fields.values["input"]
        try:
            compile_schema(schema)
        except SchemaRefused as refused:
            place = f"input.{refused.place}" if refused.place else "input"
            fields.fault(place, refused.reason, FaultCode.BAD_SCHEMA)
            return None
        return schema if is_object(schema) or isinstance(schema, bool) else None

    def _tags(self) -> tuple[str, ...]:
        tags = self._fields.texts("tags") or ()
        if len(tags) > TAGS_MAX:
            message = f"has {len(tags)} tags, the limit is {TAGS_MAX}"
            self._fields.fault("tags", message, FaultCode.BAD_VALUE)
        for tag in tags:
            if len(tag) > TAG_LENGTH_MAX:
                message = f"the tag {tag[:20]!r}… has more than {TAG_LENGTH_MAX} characters"
                self._fields.fault("tags", message, FaultCode.BAD_VALUE)
        return tags

    def _list_of_steps(self) -> list[JsonValue]:
        fields = self._fields
        if not fields.has("steps"):
            return []
        steps = fields.values["steps"]
        if not is_list(steps):
            fields.fault("steps", f"must be a list, not {kind_of(steps)}", FaultCode.WRONG_TYPE)
            return []
        if not steps:
            fields.fault("steps", "must have at least one step", FaultCode.MISSING)
        if len(steps) > STEPS_MAX:
            message = f"has {len(steps)} steps, the limit is {STEPS_MAX}"
            fields.fault("steps", message, FaultCode.TOO_LARGE)
            return []
        return steps

    def _steps(
        self, steps: list[JsonValue], graph: Graph, timeout_ms: int | None
    ) -> dict[str, StepDef]:
        # The workflow's own policy belongs to no place in the list, so its `when` sees no steps.
        retry = read_retry(
            self._fields,
            self._expressions,
            base=RetryPolicy(),
            steps=frozenset(),
            field="retry.when",
        )
        context = StepContext(
            expressions=self._expressions,
            faults=self._faults,
            retry=retry,
            run_timeout_ms=timeout_ms,
        )
        names = [step.get("name") if is_object(step) else None for step in steps]
        read: dict[str, StepDef] = {}
        for index, (value, name) in enumerate(zip(steps, names, strict=True)):
            following = names[index + 1] if index + 1 < len(names) else None
            known = graph.before.get(name) if isinstance(name, str) else None
            step = read_step(
                value,
                index,
                context,
                visible=Visible(steps=known or frozenset()),
                following=following if isinstance(following, str) else None,
            )
            if isinstance(name, str) and names.index(name) < index:
                message = f"there is another step {name!r}: steps[{names.index(name)}]"
                self._faults.add(f"steps[{index}].name", message, FaultCode.DUPLICATE)
            elif step is not None:
                read[step.path] = step
        return read

    def _output(self, graph: Graph) -> Template | None:
        # Where the list ends, every step may have run.
        visible = Visible(steps=frozenset(graph.nodes))
        return self._expressions.template(self._fields, "output", visible=visible, field="output")
