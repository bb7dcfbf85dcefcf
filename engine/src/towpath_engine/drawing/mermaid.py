"""A picture as a Mermaid flowchart: for Markdown pages and for whatever draws Mermaid.

Every text is in quotes, and each character of it that means something to Mermaid or HTML is an
entity, so that no name or expression can end its label, begin a directive or become markup.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from towpath_engine.drawing.colours import colours_of
from towpath_engine.drawing.picture import Box, Edge, Node, Picture, Shape

_PLAIN: Final = frozenset(" _-,.:()+!'/")
_AROUND: Final[Mapping[Shape, tuple[str, str]]] = {
    Shape.TASK: ("[", "]"),
    Shape.WAIT: ("([", "])"),
    Shape.SLEEP: ("([", "])"),
    Shape.CHOICE: ("{", "}"),
    Shape.PASS: ("[/", "/]"),
    Shape.RUN: ("[[", "]]"),
    Shape.WHOLE: ("[", "]"),
    Shape.TERMINAL: ("((", "))"),
}


def mermaid(picture: Picture) -> str:
    """The text of the flowchart, with a line break at its end."""
    lines = ["flowchart TB"]
    lines += _nodes(picture.root.nodes, "  ")
    edges = list(_all_edges(picture.root))
    lines += [f"  {_edge(edge)}" for edge in edges]
    lines += _styles(picture, edges)
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """For within quotes: letters, digits and a few signs stay, all else is a numeric entity."""
    return "".join(char if char in _PLAIN or char.isalnum() else f"#{ord(char)};" for char in text)


def _nodes(nodes: Iterable[Node], indent: str) -> Iterator[str]:
    for node in nodes:
        label = _label((node.title, *node.details, *node.seen))
        if not node.inside:
            before, after = _AROUND[node.shape]
            yield f"{indent}{node.id}{before}{label}{after}"
            continue
        yield f"{indent}subgraph {node.id}[{label}]"
        for box in node.inside:
            if not box.title:
                yield from _nodes(box.nodes, f"{indent}  ")
                continue
            yield f"{indent}  subgraph {box.id}[{_label((box.title, *box.seen))}]"
            yield from _nodes(box.nodes, f"{indent}    ")
            yield f"{indent}  end"
        yield f"{indent}end"


def _label(lines: Iterable[str]) -> str:
    return f'"{"<br/>".join(escaped(line) for line in lines)}"'


def _all_edges(box: Box) -> Iterator[Edge]:
    yield from box.edges
    for node in box.nodes:
        for inner in node.inside:
            yield from _all_edges(inner)


def _edge(edge: Edge) -> str:
    arrow = "-.->" if edge.kind.is_dashed else "-->"
    label = f'|"{escaped(edge.label)}"|' if edge.label else ""
    return f"{edge.source} {arrow}{label} {edge.target}"


def _styles(picture: Picture, edges: list[Edge]) -> Iterator[str]:
    """Classes for the states that occur, and the way that the run took."""
    by_state: dict[str, list[str]] = {}
    for state, name in _states(picture.root):
        by_state.setdefault(state, []).append(name)
    for state, names in by_state.items():
        fill, stroke = colours_of(state)
        yield f"  classDef {state} fill:{fill},stroke:{stroke},color:#1f2328"
        yield f"  class {','.join(names)} {state}"
    taken = [str(number) for number, edge in enumerate(edges) if edge.taken]
    if taken:
        yield f"  linkStyle {','.join(taken)} stroke:#0969da,stroke-width:3px"


def _states(box: Box) -> Iterator[tuple[str, str]]:
    for node in box.nodes:
        if node.state is not None:
            yield node.state, node.id
        for inner in node.inside:
            if inner.title and inner.state is not None:
                yield inner.state, inner.id
            yield from _states(inner)
