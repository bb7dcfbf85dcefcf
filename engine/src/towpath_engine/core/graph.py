"""A list of steps as a graph: where each step leads, and what must never be deployed.

The edges are read leniently from the document, so that the graph is checked even where the fields
of a step have faults. Nothing here is recursive: a list may have a thousand steps in one chain.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from towpath_engine.core.faults import FaultCode, Faults
from towpath_engine.core.fields import is_list, is_object
from towpath_protocol.codec import JsonValue


class Edge(Struct, frozen=True, kw_only=True):
    """A way from a step to the step named `target`; `path` is the field that says so, relative to
    the step, or empty for the order of the list."""

    target: str
    path: str = ""


class Node(Struct, frozen=True, kw_only=True):
    """A step of the graph. `ends`: the list may end here. `slow`: it has a limit or waits, so
    that a cycle through it is no busy loop."""

    index: int
    edges: tuple[Edge, ...]
    ends: bool
    slow: bool


class Graph(Struct, frozen=True, kw_only=True):
    """The steps by name, in the order of the document."""

    nodes: Mapping[str, Node]
    before: Mapping[str, frozenset[str]]
    """For each step, the steps from which it can be reached; itself when it is on a cycle."""

    @property
    def revisited(self) -> frozenset[str]:
        """The steps that a run can come to again."""
        return frozenset(name for name, before in self.before.items() if name in before)


def read_graph(steps: list[JsonValue]) -> Graph:
    """The graph of a list of steps, as far as it can be read."""
    names = [_name(step) for step in steps]
    nodes: dict[str, Node] = {}
    for index, (step, name) in enumerate(zip(steps, names, strict=True)):
        if name is None or name in nodes or not is_object(step):
            continue
        following = names[index + 1] if index + 1 < len(names) else None
        nodes[name] = _node(step, index, following)
    return Graph(nodes=nodes, before=_before(nodes))


def _name(step: JsonValue) -> str | None:
    name = step.get("name") if is_object(step) else None
    return name if isinstance(name, str) else None


def _node(step: Mapping[str, JsonValue], index: int, following: str | None) -> Node:
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
    slow = any(name in step for name in ("limit", "delay", "wait", "sleep", "until"))
    return Node(index=index, edges=tuple(edges), ends=ends, slow=slow)


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


def _before(nodes: Mapping[str, Node]) -> dict[str, frozenset[str]]:
    """Sets as bits of integers, grown until nothing changes. The list is walked to and fro, so that
    a chain settles in a few rounds in whichever direction it runs."""
    places = {name: place for place, name in enumerate(nodes)}
    targets = [
        {places[edge.target] for edge in node.edges if edge.target in places}
        for node in nodes.values()
    ]
    reaching = [0] * len(nodes)
    order = list(range(len(nodes)))
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
    names = list(nodes)
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
    """Note unknown targets, steps that can't be reached, parts that can't end, busy cycles."""
    nodes = graph.nodes
    if not nodes:
        return
    _check_targets(nodes, faults)
    first = next(iter(nodes))
    reached = {name for name in nodes if name == first or first in graph.before[name]}
    for name, node in nodes.items():
        if name not in reached:
            message = f"step {name!r} can't be reached from the first step"
            faults.add(_path(node), message, FaultCode.UNREACHABLE)
    _check_end(graph, reached, faults)
    _check_cycles(nodes, faults)


def _path(node: Node) -> str:
    return f"steps[{node.index}]"


def _check_targets(nodes: Mapping[str, Node], faults: Faults) -> None:
    for node in nodes.values():
        for edge in node.edges:
            if edge.target not in nodes and edge.path:
                message = f"there is no step {edge.target!r} in this list"
                faults.add(f"{_path(node)}.{edge.path}", message, FaultCode.UNKNOWN_TARGET)


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
            faults.add(_path(node), message, FaultCode.ENDLESS)
            return


def _check_cycles(nodes: Mapping[str, Node], faults: Faults) -> None:
    """A cycle needs a step that is limited or waits. Without those steps, no cycle may be left;
    each group of steps that still lead to each other is one fault."""
    busy = {name: node for name, node in nodes.items() if not node.slow}
    trimmed = {
        name: Node(
            index=node.index,
            edges=tuple(edge for edge in node.edges if edge.target in busy),
            ends=node.ends,
            slow=False,
        )
        for name, node in busy.items()
    }
    before = _before(trimmed)
    told: set[str] = set()
    for name, node in trimmed.items():
        if name not in before[name] or name in told:
            continue
        # On one cycle with it: what leads to it and is led to by it.
        group = [other for other in trimmed if other in before[name] and name in before[other]]
        told.update(group)
        shown = ", ".join(group[:5]) + (", …" if len(group) > 5 else "")
        message = f"the cycle of {shown} never waits: give one of its steps a `limit`, or a wait"
        faults.add(_path(node), message, FaultCode.ENDLESS)
