"""Reading lists of steps, those inside of other steps too.

What an expression may name grows inwards: a step in the body of a map sees the steps of its own
list from which it can be reached, those of the lists around it from which the map can be reached,
and the items of all maps around it. No name means two things, so a step may not be called like one
of a list around it.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core import paths
from towpath_engine.core.definition import ListDef, RetryPolicy, StepDef
from towpath_engine.core.expressions.interface import Visible
from towpath_engine.core.expressions_of import Expressions
from towpath_engine.core.faults import FaultCode, Faults
from towpath_engine.core.fields import Fields, is_list, is_object, kind_of
from towpath_engine.core.graph import Graph, check_graph, name_in, names_in, read_graph
from towpath_engine.core.parse_context import StepContext
from towpath_engine.core.parse_steps import read_step
from towpath_protocol.codec import JsonValue

STEPS_MAX: Final = 1_000
DEPTH_MAX: Final = 10
"""How many parallel and map steps may stand inside each other."""


class Around(Struct, frozen=True, kw_only=True):
    """What is around a list: where it stands, and what its expressions may name of the rest."""

    place: str = paths.ROOT
    depth: int = 0
    visible: Visible = Visible()
    places: Mapping[str, str]
    """Places of all steps of the lists around it, by name."""


class ListReader:
    """Reads the lists of one definition."""

    def __init__(
        self,
        expressions: Expressions,
        faults: Faults,
        *,
        retry: RetryPolicy,
        run_timeout_ms: int | None,
    ) -> None:
        self._expressions = expressions
        self._faults = faults
        self._retry = retry
        self._run_timeout_ms = run_timeout_ms
        self.steps: dict[str, StepDef] = {}
        """By place; filled as lists are read."""
        self.lists: dict[str, ListDef] = {}
        self.kept: set[str] = set()
        """Places of the steps that a run must keep at hand, whether an expression names them or
        not: what can be visited again, and what others come after."""

    def read(self, fields: Fields, name: str) -> Graph | None:
        """Read the workflow's own list; its graph, or None when there is nothing to read."""
        count = _count_steps(fields.values.get(name))
        if count > STEPS_MAX:
            message = f"has {count} steps, the limit is {STEPS_MAX}"
            fields.fault(name, message, FaultCode.TOO_LARGE)
            return None
        return self._list(fields, name, Around(places={}))

    def _list(self, fields: Fields, name: str, around: Around) -> Graph | None:
        if not fields.has(name):
            return None
        values = fields.values[name]
        path = fields.place(name)
        if not is_list(values):
            message = f"must be a list, not {kind_of(values)}"
            fields.fault(name, message, FaultCode.WRONG_TYPE)
            return None
        if not values:
            fields.fault(name, "must have at least one step", FaultCode.MISSING)
            return None
        graph = read_graph(values, path)
        # Its place comes before those of the lists inside of it.
        self.lists[around.place] = ListDef(place=around.place, steps=(), first=())
        read = self._steps(values, path, graph, around)
        check_graph(graph, self._faults)
        steps = tuple(read)
        self.lists[around.place] = ListDef(
            place=around.place,
            steps=steps,
            first=tuple(n for n in steps if not read[n].after) if graph.is_dag else steps[:1],
            is_dag=graph.is_dag,
        )
        self.kept |= {paths.within(around.place, name) for name in graph.revisited}
        return graph

    def _steps(
        self, values: list[JsonValue], path: str, graph: Graph, around: Around
    ) -> dict[str, StepDef]:
        """The steps by name, after those inside of them."""
        names = [name_in(value) for value in values]
        own = {name: paths.within(around.place, name) for name in graph.nodes}
        places = {**around.places, **own}
        wholes = frozenset(
            name
            for name, value in zip(names, values, strict=True)
            if name is not None and is_object(value) and ("parallel" in value or "map" in value)
        )
        ambiguous = self._ambiguous(names, path, around)
        expressions = self._expressions.of_list(places)
        read: dict[str, StepDef] = {}
        for index, (value, name) in enumerate(zip(values, names, strict=True)):
            here = f"{path}[{index}]"
            if not is_object(value):
                message = f"must be an object, not {kind_of(value)}"
                self._faults.add(here, message, FaultCode.WRONG_TYPE)
                continue
            fields = Fields(value, here, self._faults)
            before = graph.before.get(name, frozenset()) if name is not None else frozenset[str]()
            visible = replace(
                around.visible,
                steps=around.visible.steps | before,
                wholes=around.visible.wholes | wholes,
            )
            context = StepContext(
                expressions=expressions,
                faults=self._faults,
                retry=self._retry,
                run_timeout_ms=self._run_timeout_ms,
                visible=visible,
                place=paths.within(around.place, name or f"#{index}"),
                is_dag=graph.is_dag,
            )
            following = names[index + 1] if index + 1 < len(names) else None
            step = read_step(fields, context, index=index, following=following)
            if step is not None and name is not None and index not in ambiguous:
                if graph.is_dag:
                    step = self._in_dag(step, fields, name, graph)
                read[name] = step
                self.steps[step.path] = step
            inner = Around(
                place=context.place, depth=around.depth + 1, visible=visible, places=places
            )
            self._inside(fields, inner)
        return read

    def _ambiguous(self, names: list[str | None], path: str, around: Around) -> set[int]:
        """Which steps have a name that is taken."""
        found: set[int] = set()
        first: dict[str, int] = {}
        for index, name in enumerate(names):
            if name is None:
                continue
            if first.setdefault(name, index) < index:
                message = f"there is another step {name!r}: {path}[{first[name]}]"
            elif name in around.places:
                message = (
                    f"a list around this one has a step {name!r} too ({around.places[name]}): "
                    f"expressions could not tell which is meant"
                )
            else:
                continue
            self._faults.add(f"{path}[{index}].name", message, FaultCode.DUPLICATE)
            found.add(index)
        return found

    def _in_dag(self, step: StepDef, fields: Fields, name: str, graph: Graph) -> StepDef:
        after = fields.texts("after") or ()
        listed = names_in(fields.values.get("after"))
        for before in after:
            if before not in graph.nodes:
                place = f"after[{listed.index(before)}]"
                message = f"there is no step {before!r} in this list"
                fields.fault(place, message, FaultCode.UNKNOWN_TARGET)
        owner = paths.owner_of(step.path)
        self.kept |= {paths.within(owner, before) for before in after}
        followers = tuple(edge.target for edge in graph.nodes[name].edges)
        return replace(step, after=after, followers=followers)

    def _inside(self, fields: Fields, around: Around) -> None:
        """Read the lists inside of a step, as far as its fields let."""
        parallel, body = fields.values.get("parallel"), fields.values.get("map")
        if not (is_object(parallel) or is_object(body)):
            return
        if around.depth > DEPTH_MAX:
            message = f"more than {DEPTH_MAX} parallel and map steps stand inside each other"
            self._faults.add(fields.path, message, FaultCode.TOO_LARGE)
            return
        if is_object(body):
            name = body.get("as", "item")
            item = {name} if isinstance(name, str) else set[str]()
            visible = around.visible
            visible = replace(visible, names=visible.names | item | {"index"})
            inner = Fields(body, fields.place("map"), self._faults)
            self._list(inner, "steps", replace(around, visible=visible))
        branches = parallel.get("branches") if is_object(parallel) else None
        if is_object(branches):
            inner = Fields(branches, fields.place("parallel.branches"), self._faults)
            for branch in sorted(branches):
                self._list(inner, branch, replace(around, place=f"{around.place}/{branch}"))


def _count_steps(value: object) -> int:
    """How many steps the document has, in all lists; it need not be well-formed."""
    count = 0
    pending: list[object] = [value]
    while pending:
        steps = pending.pop()
        if not is_list(steps):
            continue
        count += len(steps)
        for step in steps:
            if not is_object(step):
                continue
            body, parallel = step.get("map"), step.get("parallel")
            if is_object(body):
                pending.append(body.get("steps"))
            branches = parallel.get("branches") if is_object(parallel) else None
            if is_object(branches):
                pending.extend(branches.values())
    return count
