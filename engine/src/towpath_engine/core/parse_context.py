"""What reading a part of a definition needs of the definition around it."""

from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core.definition import RetryPolicy
from towpath_engine.core.expressions.interface import Condition, Template, Visible
from towpath_engine.core.expressions_of import Expressions
from towpath_engine.core.faults import FaultCode, Faults
from towpath_engine.core.fields import Fields
from towpath_engine.core.schemas import SchemaRefused, compile_schema
from towpath_protocol.codec import JsonValue

NOTHING: frozenset[str] = frozenset()


class StepContext(Struct, frozen=True, kw_only=True):
    """What reading one step needs. `place` is that of the step (core.paths)."""

    expressions: Expressions
    faults: Faults
    retry: RetryPolicy
    """The workflow's default for task steps and for what undoes steps."""
    run_timeout_ms: int | None
    visible: Visible
    place: str
    is_dag: bool = False

    def field(self, name: str) -> str:
        """How errors at run time name a field of the step: `steps.lines/reserve.when`."""
        return f"steps.{self.place}.{name}"

    def seeing(self, names: frozenset[str]) -> Visible:
        """What is visible, and these names of the site."""
        return replace(self.visible, names=self.visible.names | names)

    def condition(
        self, fields: Fields, name: str, field: str, names: frozenset[str] = NOTHING
    ) -> Condition | None:
        """The condition in a field; `field` is relative to the step."""
        return self.expressions.condition(
            fields, name, visible=self.seeing(names), field=self.field(field)
        )

    def template(
        self, fields: Fields, name: str, field: str, names: frozenset[str] = NOTHING
    ) -> Template | None:
        """The template in a field; `field` is relative to the step."""
        return self.expressions.template(
            fields, name, visible=self.seeing(names), field=self.field(field)
        )


def read_schema(fields: Fields, name: str) -> dict[str, JsonValue] | bool | None:
    """The JSON Schema in a field; None when it is absent or faulty."""
    if not fields.has(name):
        return None
    schema = fields.values[name]
    try:
        compile_schema(schema)
    except SchemaRefused as refused:
        place = f"{name}.{refused.place}" if refused.place else name
        fields.fault(place, refused.reason, FaultCode.BAD_SCHEMA)
        return None
    return schema if isinstance(schema, bool | dict) else None
