"""Where everything of a picture goes: rows of nodes from top to bottom, edges at right angles.

The steps of a list stand in rows: each below all that lead to it, apart from ways back. Between
two rows is a gap, in which edges run on tracks of their own; those that skip rows or go back run
in lanes at the right of the rows. A label has its track to itself, so that no two ever overlap.

All numbers are pixels. The time is about linear in nodes and edges; the document bounds both.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from towpath_engine.drawing.picture import Box, Edge, Node, Picture, Shape
from towpath_engine.drawing.routing import LaidEdge, Place, Row, route
from towpath_engine.drawing.words import columns

CHARACTER: Final = 7
"""Width of a column of the fixed-width font, rounded up."""
LINE: Final = 16
TITLE_LINE: Final = 18
PADDING: Final = 10
BESIDE: Final = 28
"""Between two nodes of a row."""
BOXES_WIDTH_MAX: Final = 1_600
"""Branches that do not fit into it go on below."""
NODE_WIDTH_MIN: Final = 90


class LaidNode(Struct, frozen=True, kw_only=True):
    """A node, or a box within one, with its place."""

    item: Node | Box
    x: int
    y: int
    width: int
    height: int


class Laid(Struct, frozen=True, kw_only=True):
    """Everything with its place, outer things before inner ones."""

    width: int
    height: int
    nodes: tuple[LaidNode, ...]
    edges: tuple[LaidEdge, ...]

    def moved(self, x: int, y: int) -> Iterator["LaidNode | LaidEdge"]:
        """All of it, further right and down."""
        for node in self.nodes:
            yield LaidNode(
                item=node.item,
                x=node.x + x,
                y=node.y + y,
                width=node.width,
                height=node.height,
            )
        for edge in self.edges:
            yield edge.moved(x, y)


def lay_out(picture: Picture) -> Laid:
    """The places of everything, with a margin around."""
    laid = _lay_box(picture.root)
    margin = 2 * PADDING
    return _collect(
        laid.moved(margin, margin), width=laid.width + 2 * margin, height=laid.height + 2 * margin
    )


def text_lines(item: Node | Box) -> tuple[str, ...]:
    """What stands in a node below its title."""
    return (*item.details, *item.seen) if isinstance(item, Node) else item.seen


def _lay_box(box: Box) -> Laid:
    """A list without a frame: its nodes in rows, and its edges."""
    laid = {node.id: _lay_node(node) for node in box.nodes}
    rows = [
        Row(
            places=[
                Place(id=name, width=laid[name].width, height=laid[name].height) for name in row
            ]
        )
        for row in _rows(box.nodes, box.edges)
    ]
    width = max(sum(place.width + BESIDE for place in row.places) - BESIDE for row in rows)
    for row in rows:
        left = (width - sum(place.width + BESIDE for place in row.places) + BESIDE) // 2
        for place in row.places:
            place.x = left
            left += place.width + BESIDE
    routed = route(rows, box.edges, width=width)
    parts: list[LaidNode | LaidEdge] = []
    for row in rows:
        for place in row.places:
            parts += laid[place.id].moved(place.x, place.y)
    parts += routed.edges
    return _collect(iter(parts), width=routed.width, height=routed.height, left=routed.left)


def _lay_node(node: Node) -> Laid:
    lines = text_lines(node)
    width = max(NODE_WIDTH_MIN, _text_width((node.title, *lines)))
    height = 2 * PADDING + TITLE_LINE + LINE * len(lines)
    if node.shape is Shape.CHOICE:
        width += 2 * PADDING
    if not node.inside:
        return _framed(node, width, height, ())
    inner: list[LaidNode | LaidEdge] = []
    x, y, row_height, right = PADDING, height, 0, 0
    for box in node.inside:
        laid = _lay_branch(box)
        if x > PADDING and x + laid.width > BOXES_WIDTH_MAX:
            x, y, row_height = PADDING, y + row_height + PADDING, 0
        inner += laid.moved(x, y)
        x += laid.width + PADDING
        row_height, right = max(row_height, laid.height), max(right, x)
    wide = max(width, right)
    return _framed(node, wide, y + row_height + PADDING, inner)


def _lay_branch(box: Box) -> Laid:
    """A list within a node, with a frame and its name where it has one."""
    laid = _lay_box(box)
    if not box.title:
        return laid
    head = PADDING + TITLE_LINE + LINE * len(box.seen)
    width = max(laid.width + 2 * PADDING, _text_width((box.title, *box.seen)))
    left = (width - laid.width) // 2
    return _framed(box, width, head + laid.height + PADDING, laid.moved(left, head))


def _framed(
    item: Node | Box,
    width: int,
    height: int,
    inner: Iterator[LaidNode | LaidEdge] | Sequence[LaidNode | LaidEdge],
) -> Laid:
    # Multiples of four: what stands in the middle of a row is then exactly below its neighbour.
    width += -width % 4
    frame = LaidNode(item=item, x=0, y=0, width=width, height=height)
    return _collect(iter([frame, *inner]), width=width, height=height)


def _collect(
    parts: Iterator[LaidNode | LaidEdge], *, width: int, height: int, left: int = 0
) -> Laid:
    """`left`: how far edges reach beyond the left side, by which all is moved."""
    nodes: list[LaidNode] = []
    edges: list[LaidEdge] = []
    for part in parts:
        if isinstance(part, LaidNode):
            nodes.append(part)
        else:
            edges.append(part)
    laid = Laid(width=width, height=height, nodes=tuple(nodes), edges=tuple(edges))
    return _collect(laid.moved(left, 0), width=width + left, height=height) if left else laid


def _text_width(lines: Sequence[str]) -> int:
    return CHARACTER * max(columns(line) for line in lines) + 2 * PADDING


def _rows(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[list[str]]:
    """The ids row by row: each node below all that lead to it, apart from ways back."""
    forward = _without_ways_back(nodes, edges)
    incoming: dict[str, list[str]] = {node.id: [] for node in nodes}
    for source, targets in forward.items():
        for target in targets:
            incoming[target].append(source)
    waiting = {name: len(sources) for name, sources in incoming.items()}
    rank = dict.fromkeys(waiting, 0)
    ready = [name for name, count in waiting.items() if not count]
    for name in ready:
        for target in forward[name]:
            rank[target] = max(rank[target], rank[name] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    rows: list[list[str]] = [[] for _ in range(max(rank.values()) + 1)]
    for name, number in rank.items():
        rows[number].append(name)
    column: dict[str, float] = {}
    for row in rows:
        row.sort(key=lambda name: _mean_column(incoming[name], column))
        for number, name in enumerate(row):
            column[name] = number - (len(row) - 1) / 2
    return rows


def _mean_column(sources: Sequence[str], column: Mapping[str, float]) -> float:
    known = [column[name] for name in sources if name in column]
    return sum(known) / len(known) if known else 0.0


def _without_ways_back(nodes: Sequence[Node], edges: Sequence[Edge]) -> dict[str, list[str]]:
    """The edges that close no cycle, as a walk in the order of the nodes meets them. Without
    recursion: a list may be a thousand steps deep."""
    targets: dict[str, list[str]] = {node.id: [] for node in nodes}
    for edge in edges:
        if edge.target not in targets[edge.source]:
            targets[edge.source].append(edge.target)
    forward: dict[str, list[str]] = {name: [] for name in targets}
    done: set[str] = set()
    for first, leads in targets.items():
        open_: dict[str, Iterator[str]] = {} if first in done else {first: iter(leads)}
        while open_:
            name = next(reversed(open_))
            target = next(open_[name], None)
            if target is None:
                del open_[name]
                done.add(name)
            elif target not in open_:
                forward[name].append(target)
                if target not in done:
                    open_[target] = iter(targets[target])
    return forward
