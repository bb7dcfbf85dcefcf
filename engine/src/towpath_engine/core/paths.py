"""Where a step stands: its place in the definition, and its path within a run.

A *place* is the names from the top of the definition joined by `/`: `lines/reserve` is the step
`reserve` in the body of the map `lines`, `notify/email/send` the step `send` in the branch `email`
of the parallel step `notify`. A *path* is the same for one run, with the index of each item:
`lines[3]/reserve`. Whoever runs a list is its *owner*: the run itself (path empty), a branch
(`notify/email`) or an item (`lines[3]`); branches and items are the *parts* of a *whole*.

The row of an earlier visit that must still be undone is kept under `PATH#VISIT`. The parts of a
whole that is visited again have rows of their own, so that nothing below it is ever overwritten:
from its second visit on they stand under the path of the whole with its visit: `lines~2[3]/reserve`
is in the item 3 of the second visit of `lines`, `notify~2/email` a branch of the second of
`notify`. Workers and readers are told the path without it.
"""

import re
from typing import Final

ROOT: Final = ""
"""Path and place of the list of the run itself."""

_INDEX_OR_VISIT: Final = re.compile(r"\[[0-9]+\]|~[0-9]+")
_VISIT: Final = re.compile(r"~[0-9]+")


def place_of(path: str) -> str:
    """The place in the definition that a path belongs to: indices and visits are taken out."""
    if "#" in path:
        path = live_path(path)
    return _INDEX_OR_VISIT.sub("", path) if "[" in path or "~" in path else path


def within(owner: str, name: str) -> str:
    """The path of the step `name` in the list of `owner` (also of the branch `name` of a whole)."""
    return f"{owner}/{name}" if owner else name


def owner_of(path: str) -> str:
    """The path of the owner of the list that a step stands in. Of a branch: what its path begins
    with, which is `parts_path` of its whole (see `upper_of`)."""
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    """The last name of a path or place, without its index."""
    return place_of(path).rpartition("/")[2]


def parts_path(whole: str, visit: int) -> str:
    """What the paths of the parts of a whole begin with, in one of its visits."""
    return whole if visit == 1 else f"{whole}~{visit}"


def item_path(parts: str, index: int) -> str:
    """The path of an item of a map, from 0. `parts` is the `parts_path` of the map."""
    return f"{parts}[{index}]"


def whole_of_item(path: str) -> str:
    """What the path of an item begins with: `parts_path` of its map (see `upper_of`)."""
    return path.rpartition("[")[0]


def upper_of(path: str) -> str:
    """The path of the row that a row belongs to: of a step, the owner of its list (empty: the
    run); of a branch or an item, its whole."""
    if "/" not in path and "[" not in path:
        return ROOT
    path = path.partition("#")[0]
    upper = path.rpartition("[")[0] if path.endswith("]") else path.rpartition("/")[0]
    # Only behind a whole does a path end with a visit.
    head, _, tail = upper.rpartition("~")
    return head if head and tail.isdigit() else upper


def index_of_item(path: str) -> int:
    """The index of an item in its map."""
    return int(path.rpartition("[")[2].removesuffix("]"))


def visit_path(path: str, visit: int) -> str:
    """Where the row of an earlier visit is kept while it may have to be undone."""
    return f"{path.partition('#')[0]}#{visit}"


def live_path(path: str) -> str:
    """The path of the row in which the step lives on: without the visit of its own."""
    return path.partition("#")[0]


def told_path(path: str) -> str:
    """The path as workers and readers are told it: without any visit."""
    path = path.partition("#")[0]
    return _VISIT.sub("", path) if "~" in path else path
