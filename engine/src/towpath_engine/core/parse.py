"""From a document to a `Definition`: everything that a deploy refuses is refused here.

All faults of a document are found in one pass, each with its path. What is accepted is enforced.
"""

from collections.abc import Mapping
from typing import Final

from towpath_engine.core.definition import Definition, RetryPolicy, StepDef, TaskSpec
from towpath_engine.core.definition_schema import check_against_schema
from towpath_engine.core.document import fingerprint, normalise, read_document
from towpath_engine.core.expressions.interface import Template, Visible
from towpath_engine.core.expressions.limits import DEFAULT_EXPRESSION_LIMITS, ExpressionLimits
from towpath_engine.core.expressions_of import Expressions, Tally
from towpath_engine.core.faults import DefinitionRefused, Fault, FaultCode, Faults
from towpath_engine.core.fields import Fields
from towpath_engine.core.graph import Graph
from towpath_engine.core.parse_context import read_schema
from towpath_engine.core.parse_lists import ListReader
from towpath_engine.core.parse_retry import read_retry
from towpath_engine.core.states import WHOLE
from towpath_protocol.codec import JsonValue
from towpath_protocol.ids import check_workflow
from towpath_protocol.priorities import LEVELS, Priority

__all__ = ["DefinitionRefused", "Fault", "FaultCode", "parse_definition"]

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
        self._tally = Tally()
        self._expressions = Expressions(limits, self._tally)

    def read(self) -> Definition | None:
        """The definition; None, and faults, when it can't be built."""
        fields = self._fields
        fields.check_names(_FIELDS)
        for name in ("workflow", "steps"):
            fields.require(name)
        workflow = fields.name("workflow", check_workflow)
        if fields.word("expressions", (DIALECT,)) is None and fields.has("expressions"):
            workflow = None
        on_failure = fields.word("on_failure", ("compensate", "fail"))
        priority = fields.word("priority", tuple(priority.value for priority in LEVELS))
        timeout_ms = fields.duration("timeout")
        schema = read_schema(fields, "input")
        tags = self._tags()
        lists = self._lists(timeout_ms)
        graph = lists.read(fields, "steps")
        output = None if graph is None else self._output(graph, lists)
        if workflow is None or graph is None or self._faults.found:
            return None
        document = normalise(fields.values)
        return Definition(
            workflow=workflow,
            document=document,
            fingerprint=fingerprint(document),
            steps=lists.steps,
            lists=lists.lists,
            undo_on_failure=on_failure != "fail",
            input_schema=schema,
            output=output,
            timeout_ms=timeout_ms,
            priority=LEVELS[Priority(priority or Priority.NORMAL)],
            tags=tags,
            queues=_queues(lists.steps),
            referenced=frozenset(self._tally.referenced | lists.kept),
        )

    def _lists(self, timeout_ms: int | None) -> ListReader:
        # The workflow's own policy belongs to no place in the list, so its `when` sees no steps.
        retry = read_retry(
            self._fields,
            self._expressions,
            base=RetryPolicy(),
            visible=Visible(),
            field="retry.when",
        )
        return ListReader(self._expressions, self._faults, retry=retry, run_timeout_ms=timeout_ms)

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

    def _output(self, graph: Graph, lists: ListReader) -> Template | None:
        # Where the list ends, every step may have run.
        wholes = frozenset(path for path, step in lists.steps.items() if step.kind in WHOLE)
        visible = Visible(steps=frozenset(graph.nodes), wholes=wholes)
        expressions = self._expressions.of_list({name: name for name in graph.nodes})
        return expressions.template(self._fields, "output", visible=visible, field="output")


def _queues(steps: Mapping[str, StepDef]) -> frozenset[str]:
    specs = [spec for step in steps.values() for spec in (step.spec, step.compensate)]
    return frozenset(spec.queue for spec in specs if isinstance(spec, TaskSpec))
