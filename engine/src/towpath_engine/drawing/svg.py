"""A picture as SVG: valid XML that needs nothing from elsewhere and runs nothing."""

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from towpath_engine.drawing.colours import PLAIN, colours_of
from towpath_engine.drawing.layout import (
    LINE,
    PADDING,
    TITLE_LINE,
    Laid,
    LaidNode,
    lay_out,
    text_lines,
)
from towpath_engine.drawing.picture import Node, Picture, Shape
from towpath_engine.drawing.routing import LaidEdge, Point

_TAKEN: Final = "#0969da"
_INK: Final = "#1f2328"
_ROUND: Final = frozenset({Shape.WAIT, Shape.SLEEP, Shape.TERMINAL})
_FONT: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"


def svg(picture: Picture) -> str:
    """The text of the SVG document, with a line break at its end."""
    laid = lay_out(picture)
    # What the run took is drawn last: lines that share a lane must not hide it.
    edges = sorted(laid.edges, key=lambda each: each.edge.taken)
    return "\n".join(
        [
            *_head(picture, laid),
            *(line for node in laid.nodes for line in _node(node)),
            *(_line(edge) for edge in edges),
            *(_label(edge) for edge in edges if edge.edge.label),
            "</svg>",
            "",
        ]
    )


def _head(picture: Picture, laid: Laid) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{laid.width}" height="{laid.height}" '
        f'viewBox="0 0 {laid.width} {laid.height}" role="img" font-family="{_FONT}" '
        f'font-size="11" fill="{_INK}">'
    )
    yield f"<title>{escape(picture.title)}</title>"
    yield "<defs>"
    for name, colour in (("way", PLAIN[1]), ("taken", _TAKEN)):
        yield (
            f'<marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
            f'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        )
    yield "</defs>"
    yield f'<rect width="{laid.width}" height="{laid.height}" fill="#ffffff"/>'


def _node(laid: LaidNode) -> Iterator[str]:
    item = laid.item
    fill, stroke = colours_of(item.state)
    is_frame = not isinstance(item, Node) or bool(item.inside)
    if is_frame:
        # What is inside has colours of its own.
        opacity, dash = ' fill-opacity="0.35"', ' stroke-dasharray="2 2"'
    else:
        opacity, dash = "", ' stroke-dasharray="4 3"' if item.state == "pending" else ""
    style = f'fill="{fill}"{opacity} stroke="{stroke}"{dash}'
    shape = item.shape if isinstance(item, Node) else Shape.WHOLE
    yield _outline(laid, shape, style)
    middle = laid.x + laid.width // 2
    y = laid.y + PADDING + TITLE_LINE - 6
    yield (
        f'<text x="{middle}" y="{y}" text-anchor="middle" font-weight="bold">'
        f"{escape(item.title)}</text>"
    )
    seen_from = len(text_lines(item)) - len(item.seen)
    for number, line in enumerate(text_lines(item)):
        y += LINE
        colour = f' fill="{stroke}"' if number >= seen_from else ""
        yield f'<text x="{middle}" y="{y}" text-anchor="middle"{colour}>{escape(line)}</text>'


def _outline(laid: LaidNode, shape: Shape, style: str) -> str:
    x, y, width, height = laid.x, laid.y, laid.width, laid.height
    if shape is Shape.CHOICE:
        right, bottom, middle, corner = x + width, y + height, y + height // 2, PADDING
        points = (
            f"{x},{middle} {x + corner},{y} {right - corner},{y} {right},{middle} "
            f"{right - corner},{bottom} {x + corner},{bottom}"
        )
        return f'<polygon points="{points}" {style}/>'
    radius = min(18, height // 2) if shape in _ROUND else 4
    outline = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" {style}/>'
    if shape is Shape.RUN:
        inner = f'<rect x="{x + 3}" y="{y + 3}" width="{width - 6}" height="{height - 6}"'
        outline += f'{inner} rx="2" {style}/>'
    return outline


def _line(laid: LaidEdge) -> str:
    taken = laid.edge.taken
    colour, width, marker = (_TAKEN, 2, "taken") if taken else (PLAIN[1], 1, "way")
    dash = ' stroke-dasharray="5 4"' if laid.edge.kind.is_dashed else ""
    return (
        f'<path d="{_path(laid.points)}" fill="none" stroke="{colour}" stroke-width="{width}"'
        f'{dash} marker-end="url(#{marker})"/>'
    )


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def _label(laid: LaidEdge) -> str:
    x, y = laid.label_at
    anchor = ' text-anchor="end"' if laid.label_ends else ""
    colour = f' fill="{_TAKEN}"' if laid.edge.taken else ""
    return (
        f'<text x="{x}" y="{y}"{anchor}{colour} stroke="#ffffff" stroke-width="3" '
        f'stroke-linejoin="round" paint-order="stroke">{escape(laid.edge.label)}</text>'
    )
