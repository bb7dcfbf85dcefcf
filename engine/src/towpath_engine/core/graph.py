"""A list of steps as a graph: where each step leads, and what must never be deployed.

The edges are read leniently from the document, so that the graph is checked even where the fields
of a step have faults. Nothing here is recursive: a list may have a thousand steps in one chain.
Each list of a definition is a graph of its own: no edge leaves it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from towpath_engine.core.faults import FaultCode, Faults
from towpath_engine.core.fields import is_list, is_object
from towpath_protocol.codec import JsonValue

WAITING: Final = ("delay", "wait", "sleep", "until")
"""What makes a step wait, so that a cycle through it is no busy loop."""


class Edge(Struct, frozen=True, kw_only=True):
    """A way from a step to the step named `target`; `path` is the field that says so, relative to
    the step, or empty for the order of the list."""

    target: str
    path: str = ""


class Node(Struct, frozen=True, kw_only=True):
    """A step of the graph. `ends`: the list may end here.

    `free` are the edges that can be taken without end and without a wait: none of a step that is
    limited or waits, but those of its `catch` that can be taken before it has waited.
    """

    path: str
    edges: tuple[Edge, ...]
    ends: bool
    free: tuple[Edge, ...] = ()


class Graph(Struct, frozen=True, kw_only=True):
    """The steps of a list by name, in the order of the document.

    In a DAG the edges lead from a step to those that name it in their `after`.
    """

    nodes: Mapping[str, Node]
    before: Mapping[str, frozenset[str]]
    """For each step, the steps from which it can be reached; itself when it is on a cycle."""
    is_dag: bool = False

    @property
    def revisited(self) -> frozenset[str]:
        """The steps that a run can come to again."""
        return frozenset(name for name, before in self.before.items() if name in before)


def read_graph(steps: list[JsonValue], path: str) -> Graph:
    """The graph of the list of steps at `path`, as far as it can be read."""
    names = [name_in(step) for step in steps]
    nodes: dict[str, Node] = {}
    is_dag = any(is_object(step) and "after" in step for step in steps)
    followers = _followers(steps) if is_dag else {}
    for index, (step, name) in enumerate(zip(steps, names, strict=True)):
        if name is None or name in nodes or not is_object(step):
            continue
        here = f"{path}[{index}]"
        if is_dag:
            edges = tuple(Edge(target=target) for target in followers.get(name, ()))
            nodes[name] = Node(path=here, edges=edges, ends=True)
        else:
            following = names[index + 1] if index + 1 < len(names) else None
            nodes[name] = _node(step, here, following)
    reaching = _before({name: node.edges for name, node in nodes.items()})
    return Graph(nodes=nodes, before=reaching, is_dag=is_dag)


def name_in(step: JsonValue) -> str | None:
    """The name of a step, as far as it can be read."""
    name = step.get("name") if is_object(step) else None
    return name if isinstance(name, str) else None


def names_in(value: object) -> list[str]:
    """The strings of a list, as far as it is one."""
    return [item for item in value if isinstance(item, str)] if is_list(value) else []


def _followers(steps: list[JsonValue]) -> dict[str, list[str]]:
    followers: dict[str, list[str]] = {}
    for step in steps:
        name = name_in(step)
        if name is None or not is_object(step):
            continue
        for before in names_in(step.get("after")):
            followers.setdefault(before, []).append(name)
    return followers


def _node(step: Mapping[str, JsonValue], path: str, following: str | None) -> Node:
    edges = list(_jumps(step))
    ends = False
    if "choice" not in step or "when" in step:
        # A choice leads on only where its rows say; but one that is skipped is followed like any.
        jump = step.get("next")
        if step.get("end") is True:
            ends = True
        elif isinstance(jump, str):
            edges.append(Edge(target=jump, path="next"))
        elif following is not None:
            edges.append(Edge(target=following))
        else:
            ends = True
    edges.extend(_caught(step))
    return Node(path=path, edges=tuple(edges), ends=ends, free=_free(step, edges))


def _free(step: Mapping[str, JsonValue], edges: list[Edge]) -> tuple[Edge, ...]:
    if "limit" in step:
        # One visit too many fails before anything else is done, and the limit bounds the others.
        return tuple(_caught(step, "VisitLimit"))
    if not any(name in step for name in WAITING):
        return tuple(edges)
    # `when` is asked before the wait; so is what `until` says, but after the delay.
    fails_early = "when" in step or ("delay" not in step and _has_instant(step))
    return tuple(_caught(step, "ExpressionError")) if fails_early else ()


def _has_instant(step: Mapping[str, JsonValue]) -> bool:
    return "until" in step or is_object(step.get("sleep"))


def _jumps(step: Mapping[str, JsonValue]) -> Iterator[Edge]:
    choice = step.get("choice")
    if is_list(choice):
        for index, row in enumerate(choice):
            target = row.get("next") if is_object(row) else None
            if isinstance(target, str):
                yield Edge(target=target, path=f"choice[{index}].next")
    default = step.get("default")
    if isinstance(default, str):
        yield Edge(target=default, path="default")
    wait = step.get("wait")
    on_timeout = wait.get("on_timeout") if is_object(wait) else None
    target = on_timeout.get("next") if is_object(on_timeout) else None
    if isinstance(target, str):
        yield Edge(target=target, path="wait.on_timeout.next")


def _caught(step: Mapping[str, JsonValue], error: str | None = None) -> Iterator[Edge]:
    """The ways of `catch`; with `error` only those that such an error may take."""
    rows = step.get("catch")
    for index, row in enumerate(rows if is_list(rows) else []):
        if not is_object(row):
            continue
        target, errors = row.get("next"), row.get("errors")
        fits = error is None or errors is None or error in names_in(errors)
        if fits and isinstance(target, str):
            yield Edge(target=target, path=f"catch[{index}].next")
        if fits and error is not None and "when" not in row:
            return


def _before(edges: Mapping[str, Iterable[Edge]]) -> dict[str, frozenset[str]]:
    """Sets as bits of integers, grown until nothing changes. The list is walked to and fro, so that
    a chain settles in a few rounds in whichever direction it runs."""
    places = {name: place for place, name in enumerate(edges)}
    targets = [
        {places[edge.target] for edge in leading if edge.target in places}
        for leading in edges.values()
    ]
    reaching = [0] * len(places)
    order = list(range(len(places)))
    changed = True
    while changed:
        changed = False
        for place in order:
            through = reaching[place] | 1 << place
            for target in targets[place]:
                if through | reaching[target] != reaching[target]:
                    reaching[target] |= through
                    changed = True
        order.reverse()
    names = list(places)
    return {
        name: frozenset(names[place] for place in _bits(reaching[index]))
        for index, name in enumerate(names)
    }


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def check_graph(graph: Graph, faults: Faults) -> None:
    """Note unknown targets, steps that can't be reached, parts that can't end, busy cycles; in a
    DAG steps that wait for themselves (what `after` names is looked at with the other fields)."""
    nodes = graph.nodes
    if not nodes:
        return
    if graph.is_dag:
        for name, group in _groups(graph.before):
            message = f"{_shown(group)} would wait for each other for ever"
            if len(group) == 1:
                message = f"{name} would wait for itself for ever"
            faults.add(f"{nodes[name].path}.after", message, FaultCode.ENDLESS)
        return
    _check_targets(nodes, faults)
    first = next(iter(nodes))
    reached = {name for name in nodes if name == first or first in graph.before[name]}
    for name, node in nodes.items():
        if name not in reached:
            message = f"step {name!r} can't be reached from the first step"
            faults.add(node.path, message, FaultCode.UNREACHABLE)
    _check_end(graph, reached, faults)
    _check_cycles(nodes, faults)


def _check_targets(nodes: Mapping[str, Node], faults: Faults) -> None:
    for node in nodes.values():
        for edge in node.edges:
            if edge.target not in nodes and edge.path:
                message = f"there is no step {edge.target!r} in this list"
                faults.add(f"{node.path}.{edge.path}", message, FaultCode.UNKNOWN_TARGET)


def _check_end(graph: Graph, reached: set[str], faults: Faults) -> None:
    """Every step that is reached must have a way to the end; the first that has none is named."""
    ending = {name for name, node in graph.nodes.items() if node.ends}
    # A step with an unknown target has its own fault; where it leads nobody can say.
    ending |= {
        name
        for name, node in graph.nodes.items()
        if any(edge.target not in graph.nodes for edge in node.edges)
    }
    leading = set(ending).union(*(graph.before[name] for name in ending))
    for name, node in graph.nodes.items():
        if name in reached and name not in leading:
            message = f"from step {name!r} on, the list can't end: give a step `end: true`"
            faults.add(node.path, message, FaultCode.ENDLESS)
            return


def _check_cycles(nodes: Mapping[str, Node], faults: Faults) -> None:
    """A cycle needs a step that is limited or waits: along the ways that are neither, no cycle may
    be left."""
    before = _before({name: node.free for name, node in nodes.items()})
    for name, group in _groups(before):
        message = (
            f"the cycle of {_shown(group)} never waits: give one of its steps a `limit`, or a wait"
        )
        if any(edge.path.startswith("catch") for edge in nodes[name].free):
            message += "; a `catch` of what that step fails with must not lead back into it"
        faults.add(nodes[name].path, message, FaultCode.ENDLESS)


def _groups(before: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, list[str]]]:
    """The groups of steps that lead to each other, each with its first step."""
    told: set[str] = set()
    for name, reaching in before.items():
        if name in told or name not in reaching:
            continue
        # On one cycle with it: what leads to it and is led to by it.
        group = [other for other in before if other in reaching and name in before[other]]
        told.update(group)
        yield name, group


def _shown(group: list[str]) -> str:
    return ", ".join(group[:5]) + (", …" if len(group) > 5 else "")
