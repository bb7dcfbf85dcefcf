"""The edges of one list: on which tracks of the gaps between its rows, and in which lanes beside
them, they run.

An edge leaves a node at its bottom and comes to another at the middle of its top. To the next row
it needs at most one track of the gap between; to any other a track, a lane and another track.
Edges without a label share the track and the lane of those that go to the same node.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from towpath_engine.drawing.picture import Edge
from towpath_engine.drawing.words import columns

GAP_ENDS: Final = 14
"""Above the first track of a gap and below the last: room for an arrow."""
TRACK: Final = 10
LABEL_TRACK: Final = 18
LANE: Final = 12
PORT: Final = 12
"""Between two edges where they leave a node."""
LABEL_CHARACTER: Final = 7

Point = tuple[int, int]


class Place(Struct, kw_only=True):
    """Of a node: where it stands. Its row is placed by `route`."""

    id: str
    width: int
    height: int
    x: int = 0
    y: int = 0

    @property
    def middle(self) -> int:
        """Where edges come to it."""
        return self.x + self.width // 2


class Row(Struct, kw_only=True):
    """Nodes side by side."""

    places: list[Place]


class LaidEdge(Struct, frozen=True, kw_only=True):
    """An edge with the corners of its line, and where its label begins (or ends, `label_ends`)."""

    edge: Edge
    points: tuple[Point, ...]
    label_at: Point = (0, 0)
    label_ends: bool = False

    def moved(self, x: int, y: int) -> "LaidEdge":
        """The same, further right and down."""
        return LaidEdge(
            edge=self.edge,
            points=tuple((px + x, py + y) for px, py in self.points),
            label_at=(self.label_at[0] + x, self.label_at[1] + y),
            label_ends=self.label_ends,
        )


class Routed(Struct, frozen=True, kw_only=True):
    """The edges of a list, and its size with them; `left`: how far labels reach beyond x = 0."""

    edges: tuple[LaidEdge, ...]
    width: int
    height: int
    left: int


class _Way(Struct, kw_only=True):
    """An edge on its way: from the gap below its source to the gap above its target."""

    edge: Edge
    source: Place
    target: Place
    out_gap: int
    in_gap: int
    port: int = 0
    lane: int = 0

    @property
    def direct(self) -> bool:
        return self.out_gap == self.in_gap

    @property
    def straight(self) -> bool:
        return self.direct and self.port == self.target.middle

    @property
    def out_track(self) -> str:
        """Which track of the gap below its source is its own, or shared by this name."""
        if self.edge.label:
            return f"label {self.edge.source} {self.edge.target} {self.edge.kind}"
        return f"in {self.edge.target}" if self.direct else f"out {self.edge.target}"

    @property
    def in_track(self) -> str:
        return self.out_track if self.direct else f"in {self.edge.target}"

    @property
    def label_goes_left(self) -> bool:
        return self.direct and self.port < self.source.middle


def route(rows: Sequence[Row], edges: Sequence[Edge], *, width: int) -> Routed:
    """Place the rows one below the other, with the edges between them."""
    ways = _ways(rows, edges)
    for source in {way.edge.source: way.source for way in ways}.values():
        _give_ports(source, [way for way in ways if way.source is source])
    right, left = _reach(ways, width)
    lanes = _give_lanes(ways, right)
    tracks = _tracks(ways, len(rows) + 1)
    tops, height = _place_rows(rows, tracks)
    laid = tuple(_line(way, tracks, tops) for way in ways)
    total = right + (LANE * (lanes + 1) if lanes else 0)
    return Routed(edges=laid, width=total, height=height, left=left)


def _ways(rows: Sequence[Row], edges: Sequence[Edge]) -> list[_Way]:
    row_of = {place.id: number for number, row in enumerate(rows) for place in row.places}
    by_id = {place.id: place for row in rows for place in row.places}
    return [
        _Way(
            edge=edge,
            source=by_id[edge.source],
            target=by_id[edge.target],
            out_gap=row_of[edge.source] + 1,
            in_gap=row_of[edge.target],
        )
        for edge in edges
    ]


def _give_ports(source: Place, ways: Sequence[_Way]) -> None:
    """Where each edge leaves: straight down from the middle, else on the side to which it goes,
    those that go furthest at the outside, so that they do not cross each other."""
    leftward = [way for way in ways if way.direct and way.target.middle < source.middle]
    straight = [way for way in ways if way.direct and way.target.middle == source.middle]
    rightward = [way for way in ways if way.direct and way.target.middle > source.middle]
    rightward.sort(key=lambda way: way.target.middle)
    leftward.sort(key=lambda way: -way.target.middle)
    # A second straight one (a timeout beside the next step) must be told from the first.
    rightward = [*straight[1:], *rightward, *(way for way in ways if not way.direct)]
    if straight:
        straight[0].port = source.middle
    for side, sign in ((leftward, -1), (rightward, 1)):
        step = min(PORT, (source.width // 2 - 6) / max(1, len(side)))
        for number, way in enumerate(side, start=1):
            way.port = source.middle + sign * round(step * number)


def _reach(ways: Sequence[_Way], width: int) -> tuple[int, int]:
    """How far the labels reach to the right, and to the left of the nodes."""
    right, left = width, 0
    for way in ways:
        length = LABEL_CHARACTER * columns(way.edge.label) + 8
        if way.edge.label and way.label_goes_left:
            left = max(left, length - way.port)
        elif way.edge.label:
            right = max(right, way.port + length)
    return right, left


def _give_lanes(ways: Sequence[_Way], right: int) -> int:
    """Lanes for what does not go to the next row, one for each target; how many there are. Lanes
    whose stretches do not touch share a place."""
    stretches: dict[str, tuple[int, int]] = {}
    for way in ways:
        if not way.direct:
            ends = (way.out_gap, way.in_gap, *stretches.get(way.edge.target, ()))
            stretches[way.edge.target] = (min(ends), max(ends))
    free_from: list[int] = []
    number_of: dict[str, int] = {}
    for target, (first, last) in sorted(stretches.items(), key=lambda each: each[1]):
        number = next((n for n, free in enumerate(free_from) if free < first), len(free_from))
        if number == len(free_from):
            free_from.append(last)
        free_from[number] = last
        number_of[target] = number
    for way in ways:
        if not way.direct:
            way.lane = right + LANE * (number_of[way.edge.target] + 1)
    return len(free_from)


def _tracks(ways: Sequence[_Way], gaps: int) -> list[dict[str, int]]:
    """For each gap: by name of its track how far below the top of the gap it runs."""
    found: list[dict[str, bool]] = [{} for _ in range(gaps)]
    # The outermost first: then those further in do not cross their labels.
    for way in sorted(ways, key=lambda way: -abs(way.port - way.source.middle)):
        if not way.straight or way.edge.label:
            found[way.out_gap].setdefault(way.out_track, bool(way.edge.label))
    for way in ways:
        if not way.direct:
            found[way.in_gap].setdefault(way.in_track, False)
    return [_stacked(tracks) for tracks in found]


def _stacked(tracks: Mapping[str, bool]) -> dict[str, int]:
    placed: dict[str, int] = {}
    y = GAP_ENDS
    for name in sorted(tracks, key=lambda name: name.startswith("in ")):
        y += LABEL_TRACK if tracks[name] else TRACK
        placed[name] = y
    return placed


def _place_rows(rows: Sequence[Row], tracks: Sequence[Mapping[str, int]]) -> tuple[list[int], int]:
    """Put the rows below each other; the top of each gap, and the height of all."""
    tops: list[int] = []
    y = 0
    for number, gap in enumerate(tracks):
        tops.append(y)
        is_outer = number in (0, len(rows))
        y += max(gap.values()) + GAP_ENDS if gap else (GAP_ENDS // 2 if is_outer else 2 * GAP_ENDS)
        if number < len(rows):
            height = max(place.height for place in rows[number].places)
            for place in rows[number].places:
                # Nodes of a row stand on one line, from which their edges go down.
                place.y = y + (height - place.height) // 2
            y += height
    return tops, y


def _line(way: _Way, tracks: Sequence[Mapping[str, int]], tops: Sequence[int]) -> LaidEdge:
    start = (way.port, way.source.y + way.source.height)
    end = (way.target.middle, way.target.y)
    out_y = tops[way.out_gap] + tracks[way.out_gap].get(way.out_track, 0)
    if way.straight:
        points = (start, end)
    elif way.direct:
        points = (start, (way.port, out_y), (end[0], out_y), end)
    else:
        in_y = tops[way.in_gap] + tracks[way.in_gap][way.in_track]
        points = (
            start, (way.port, out_y), (way.lane, out_y), (way.lane, in_y), (end[0], in_y), end,
        )  # fmt: skip
    left = way.label_goes_left
    return LaidEdge(
        edge=way.edge,
        points=points,
        label_at=(way.port - 4 if left else way.port + 4, out_y - 4),
        label_ends=left,
    )
