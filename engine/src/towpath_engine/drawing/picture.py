"""What there is to draw of a definition, and of a run of it: boxes of nodes, and their edges.

A box is a list of steps: the workflow's own, that of a branch, or the one that a map runs for each
item. A node is a step; a `parallel` or `map` has its boxes inside. Edges stay within a box, as
jumps do.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core import paths
from towpath_engine.core.definition import (
    ChoiceSpec,
    Definition,
    ListDef,
    MapSpec,
    ParallelSpec,
    StepDef,
    WaitSpec,
)
from towpath_engine.core.states import StepKind
from towpath_engine.drawing.details import details_of
from towpath_engine.drawing.notes import seen_of_branch, seen_of_step
from towpath_engine.drawing.seen import PlaceSeen, RunSeen
from towpath_engine.drawing.words import LABEL_CHARACTERS_MAX, cut, duration

START: Final = "start"
END: Final = "finish"
"""`end` is a word of Mermaid."""


class Shape(StrEnum):
    """What a node looks like: by its kind, or where the list of the workflow begins and ends."""

    TASK = "task"
    WAIT = "wait"
    SLEEP = "sleep"
    CHOICE = "choice"
    PASS = "pass"  # noqa: S105 - a kind of step, no password
    RUN = "run"
    WHOLE = "whole"
    TERMINAL = "terminal"


class EdgeKind(StrEnum):
    """Why a run goes that way."""

    NEXT = "next"
    AFTER = "after"
    CHOICE = "choice"
    TIMEOUT = "timeout"
    CATCH = "catch"

    @property
    def is_dashed(self) -> bool:
        """Ways that are taken when something did not go as planned."""
        return self in (EdgeKind.TIMEOUT, EdgeKind.CATCH)


class Edge(Struct, frozen=True, kw_only=True):
    """A way from one node of a box to another, by their ids. `taken`: the run went there."""

    source: str
    target: str
    kind: EdgeKind = EdgeKind.NEXT
    label: str = ""
    taken: bool = False


class Node(Struct, frozen=True, kw_only=True):
    """A step. `details` say what it is to do, `seen` what became of it; `state` colours it."""

    id: str
    shape: Shape
    title: str
    details: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    state: str | None = None
    inside: tuple["Box", ...] = ()


class Box(Struct, frozen=True, kw_only=True):
    """A list of steps. The title is the name of a branch, else empty."""

    id: str
    title: str = ""
    seen: tuple[str, ...] = ()
    state: str | None = None
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


class Picture(Struct, frozen=True, kw_only=True):
    """All that is drawn. The title names the workflow, or the run."""

    title: str
    root: Box


def picture_of(definition: Definition, *, title: str, seen: RunSeen | None = None) -> Picture:
    """The picture of a definition, or of a run of it."""
    return Picture(title=cut(title, 120), root=_Drawer(definition, seen).root(title))


class _Drawer:
    def __init__(self, definition: Definition, seen: RunSeen | None) -> None:
        self._definition = definition
        self._seen = seen
        self._ids = {place: f"s{number}" for number, place in enumerate(definition.steps, start=1)}

    def root(self, title: str) -> Box:
        box = self._box("", self._definition.root)
        firsts = [self._place("", name) for name in self._definition.root.first]
        seen = self._seen
        edges = [
            Edge(source=START, target=self._ids[place], taken=seen is not None and self._ran(place))
            for place in firsts
        ]
        edges += box.edges
        edges += [
            Edge(source=self._ids[step.path], target=END, taken=self._ended(step))
            for step in self._steps(self._definition.root)
            if _may_end(step)
        ]
        status = () if seen is None else (seen.status.replace("_", " "),)
        settled = None if seen is None or not seen.settled else seen.status
        start = Node(id=START, shape=Shape.TERMINAL, title=cut(title, 80), seen=status)
        end = Node(id=END, shape=Shape.TERMINAL, title="end", state=settled)
        return replace(box, nodes=(start, *box.nodes, end), edges=tuple(edges))

    def _box(self, title: str, of: ListDef) -> Box:
        steps = list(self._steps(of))
        branch = self._seen.places.get(of.place) if self._seen is not None and title else None
        return Box(
            id=f"list_{self._number(of.place)}",
            title=cut(title),
            seen=() if branch is None else seen_of_branch(branch),
            state=_state(self._seen, branch) if title else None,
            nodes=tuple(self._node(step) for step in steps),
            edges=tuple(self._edges(of, steps)),
        )

    def _number(self, place: str) -> str:
        """Of a branch: that of its step with its own place among the branches."""
        if place in self._ids or not place:
            return self._ids.get(place, "root")
        whole = paths.owner_of(place)
        spec = self._definition.steps[whole].spec
        names = spec.branches if isinstance(spec, ParallelSpec) else ()
        return f"{self._ids[whole]}_{names.index(paths.name_of(place)) + 1}"

    def _node(self, step: StepDef) -> Node:
        place = None if self._seen is None else self._seen.places.get(step.path)
        return Node(
            id=self._ids[step.path],
            shape=_shape(step),
            title=cut(paths.name_of(step.path)),
            details=details_of(step, self._definition.document),
            seen=() if place is None else seen_of_step(step, place),
            state=_state(self._seen, place),
            inside=tuple(self._inside(step)),
        )

    def _inside(self, step: StepDef) -> Iterator[Box]:
        lists = self._definition.lists
        if isinstance(step.spec, MapSpec):
            yield self._box("", lists[step.path])
        elif isinstance(step.spec, ParallelSpec):
            for name in step.spec.branches:
                yield self._box(name, lists[paths.within(step.path, name)])

    def _edges(self, of: ListDef, steps: list[StepDef]) -> Iterator[Edge]:
        """Those of a list. Ways of one kind between the same two are one edge."""
        found: dict[tuple[str, str, EdgeKind], list[str]] = {}
        for step in steps:
            for target, kind, label in _ways(step, is_dag=of.is_dag):
                place = self._place(of.place, target)
                found.setdefault((step.path, place, kind), []).append(label)
        arriving: dict[str, set[str]] = {}
        for source, target, _ in found:
            arriving.setdefault(target, set()).add(source)
        for (source, target, kind), labels in found.items():
            yield Edge(
                source=self._ids[source],
                target=self._ids[target],
                kind=kind,
                label=cut(" or ".join(dict.fromkeys(filter(None, labels))), LABEL_CHARACTERS_MAX),
                taken=self._took(source, target, kind, only_way=len(arriving[target]) == 1),
            )

    def _took(self, source: str, target: str, kind: EdgeKind, *, only_way: bool) -> bool:
        """Whether the run went there: its history says so, or the rows leave no other way."""
        seen = self._seen
        if seen is None or not self._ran(source) or not self._ran(target):
            return False
        found = seen.places[source]
        if kind is EdgeKind.CATCH:
            failed = "failed" in found.counts
            return (source, target) in seen.caught or (failed and only_way)
        if kind is EdgeKind.CHOICE:
            return paths.name_of(target) in found.chosen or (source, target) in seen.ways
        if (source, target) in seen.ways:
            return kind is EdgeKind.TIMEOUT or not found.chosen
        spec = self._definition.steps[source].spec
        may_fork = isinstance(spec, ChoiceSpec) or (
            isinstance(spec, WaitSpec) and spec.on_timeout_next is not None
        )
        if not found.left:
            return "skipped" in found.counts and only_way
        return (only_way or not may_fork) and not found.chosen

    def _ran(self, place: str) -> bool:
        """Whether the run came there. Without a condition, what is skipped was never reached."""
        found = None if self._seen is None else self._seen.places.get(place)
        if found is None:
            return False
        conditional = self._definition.steps[place].when is not None
        return any(status != "skipped" or conditional for status in found.counts)

    def _ended(self, step: StepDef) -> bool:
        seen = self._seen
        if seen is None or seen.status != "completed" or not self._ran(step.path):
            return False
        if seen.last is not None and not self._definition.root.is_dag:
            if _may_end(self._definition.steps[seen.last]):
                return seen.last == step.path
            return "skipped" in seen.places[step.path].counts
        return "completed" in seen.places[step.path].counts

    def _steps(self, of: ListDef) -> Iterator[StepDef]:
        return (self._definition.steps[self._place(of.place, name)] for name in of.steps)

    @staticmethod
    def _place(owner: str, name: str) -> str:
        return paths.within(owner, name)


_SHAPES: Final[Mapping[StepKind, Shape]] = {
    StepKind.TASK: Shape.TASK,
    StepKind.WAIT: Shape.WAIT,
    StepKind.SLEEP: Shape.SLEEP,
    StepKind.CHOICE: Shape.CHOICE,
    StepKind.PASS: Shape.PASS,
    StepKind.RUN: Shape.RUN,
    StepKind.PARALLEL: Shape.WHOLE,
    StepKind.MAP: Shape.WHOLE,
}


def _shape(step: StepDef) -> Shape:
    return _SHAPES[step.kind]


def _state(seen: RunSeen | None, place: PlaceSeen | None) -> str | None:
    """The status that colours a step; `pending` where the run did not come."""
    if seen is None:
        return None
    return (None if place is None else place.state) or "pending"


def _may_end(step: StepDef) -> bool:
    """Whether the list of the workflow may end with this step."""
    if step.followers:
        return False
    if isinstance(step.spec, ChoiceSpec) and step.when is None:
        return False
    return step.successor is None


def _ways(step: StepDef, *, is_dag: bool) -> Iterator[tuple[str, EdgeKind, str]]:
    """Where a run may go from here, why, and what is said at the edge."""
    spec = step.spec
    if is_dag:
        for follower in step.followers:
            yield follower, EdgeKind.AFTER, ""
    elif isinstance(spec, ChoiceSpec):
        for row in spec.branches:
            yield row.next, EdgeKind.CHOICE, row.when.source
        if spec.default is not None:
            yield spec.default, EdgeKind.CHOICE, "default"
        if step.when is not None and step.successor is not None:
            yield step.successor, EdgeKind.NEXT, "skipped"
    elif step.successor is not None:
        yield step.successor, EdgeKind.NEXT, ""
    if isinstance(spec, WaitSpec) and spec.on_timeout_next is not None:
        after = "" if spec.timeout_ms is None else f" {duration(spec.timeout_ms)}"
        yield spec.on_timeout_next, EdgeKind.TIMEOUT, f"timeout{after}"
    for row in step.catch:
        which = "any error" if row.errors is None else ", ".join(sorted(row.errors))
        condition = "" if row.when is None else f" if {row.when.source}"
        yield row.next, EdgeKind.CATCH, f"{which}{condition}"
